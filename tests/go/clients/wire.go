package main

import (
	"context"
	"fmt"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// wireChecks are about the forms things are sent in.
func wireChecks() []check {
	return []check{
		{"typed clients sent protobuf and got it", sentProtobuf},
		{"a client that takes nothing but protobuf", onlyProtobuf},
		{"a client that speaks JSON", onlyJSON},
		{"discovery finds every kind, OpenAPI can be read", discoveryWorks},
	}
}

func sentProtobuf(_ context.Context, it *suite) error {
	for _, one := range it.wire.find("POST", "/"+it.namespace+"/configmaps") {
		if one.sent != protobuf || one.answered != protobuf {
			return fmt.Errorf("sent %s, got %s", one.sent, one.answered)
		}
	}
	return expect("asked at all", len(it.wire.find("POST", "/"+it.namespace+"/configmaps")) > 0, true)
}

func withForm(it *suite, sent, accepted string) (*kubernetes.Clientset, error) {
	config := rest.CopyConfig(it.config)
	config.ContentType, config.AcceptContentTypes = sent, accepted
	return kubernetes.NewForConfig(config)
}

func onlyProtobuf(ctx context.Context, it *suite) error {
	client, err := withForm(it, protobuf, protobuf)
	if err != nil {
		return err
	}
	return exercise(ctx, it, client, "only-protobuf")
}

func onlyJSON(ctx context.Context, it *suite) error {
	client, err := withForm(it, "application/json", "application/json")
	if err != nil {
		return err
	}
	return exercise(ctx, it, client, "only-json")
}

func exercise(ctx context.Context, it *suite, client *kubernetes.Clientset, name string) error {
	maps := client.CoreV1().ConfigMaps(it.namespace)
	watching, err := maps.Watch(ctx, meta.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return err
	}
	defer watching.Stop()
	if _, err := maps.Create(ctx, &core.ConfigMap{ObjectMeta: named(name)}, meta.CreateOptions{}); err != nil {
		return err
	}
	select {
	case event := <-watching.ResultChan():
		if made, ok := event.Object.(*core.ConfigMap); !ok || made.Name != name {
			return fmt.Errorf("watched %+v", event)
		}
	case <-ctx.Done():
		return fmt.Errorf("nothing came")
	}
	if _, err := maps.List(ctx, meta.ListOptions{}); err != nil {
		return err
	}
	_, err = maps.Get(ctx, "no-such-map", meta.GetOptions{})
	return expect("not found", apierrors.IsNotFound(err), true)
}

func discoveryWorks(_ context.Context, it *suite) error {
	_, lists, err := it.typed.Discovery().ServerGroupsAndResources()
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			found[list.GroupVersion+" "+resource.Name] = true
		}
	}
	for _, wanted := range []string{"v1 secrets", "coordination.k8s.io/v1 leases", "cert-manager.io/v1 certificates", "cert-manager.io/v1 certificates/status"} {
		if !found[wanted] {
			return fmt.Errorf("no %s", wanted)
		}
	}
	document, err := it.typed.Discovery().OpenAPISchema()
	if err != nil {
		return err
	}
	if err := expect("definitions", len(document.GetDefinitions().GetAdditionalProperties()) > 10, true); err != nil {
		return err
	}
	paths, err := it.typed.Discovery().OpenAPIV3().Paths()
	if err != nil {
		return err
	}
	if _, err := paths["apis/cert-manager.io/v1"].Schema("application/com.github.proto-openapi.spec.v3@v1.0+protobuf"); err != nil {
		if _, err := paths["apis/cert-manager.io/v1"].Schema("application/json"); err != nil {
			return err
		}
	}
	_, err = discovery.ServerPreferredResources(it.typed.Discovery())
	return err
}
