package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata/metadatainformer"
)

var certificatesResource = schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "certificates"}

// dynamicChecks are about custom kinds, which go as JSON.
func dynamicChecks() []check {
	return []check{
		{"the dynamic client creates, applies status, patches and deletes a Certificate", dynamicCertificate},
		{"server-side apply by the dynamic client", dynamicApply},
		{"an informer of Certificates", dynamicInformer},
		{"an informer of Certificates' metadata, in protobuf", metadataInformer},
		{"a typed CustomResourceDefinition, in protobuf", typedDefinition},
	}
}

func certificate(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"secretName": name, "dnsNames": []any{"example.com"}, "issuerRef": map[string]any{"name": "nobody"}},
	}}
}

func dynamicCertificate(ctx context.Context, it *suite) error {
	api := it.dynamic.Resource(certificatesResource).Namespace(it.namespace)
	made, err := api.Create(ctx, certificate("dynamic"), meta.CreateOptions{})
	if err != nil {
		return err
	}
	if err := expect("generation", made.GetGeneration(), 1); err != nil {
		return err
	}
	wrong := certificate("wrong")
	unstructured.RemoveNestedField(wrong.Object, "spec", "issuerRef")
	if _, err := api.Create(ctx, wrong, meta.CreateOptions{}); !apierrors.IsInvalid(err) {
		return fmt.Errorf("taken without issuerRef: %v", err)
	}
	err = eventually(ctx, "a status that is not overtaken", func() (bool, error) {
		current, err := api.Get(ctx, "dynamic", meta.GetOptions{})
		if err != nil {
			return false, err
		}
		if err := unstructured.SetNestedField(current.Object, int64(7), "status", "revision"); err != nil {
			return false, err
		}
		written, err := api.UpdateStatus(ctx, current, meta.UpdateOptions{})
		if apierrors.IsConflict(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		revision, _, err := unstructured.NestedInt64(written.Object, "status", "revision")
		return revision == 7, err
	})
	if err != nil {
		return err
	}
	patch := []byte(`{"spec":{"dnsNames":["example.org"]}}`)
	if _, err := api.Patch(ctx, "dynamic", "application/merge-patch+json", patch, meta.PatchOptions{}); err != nil {
		return err
	}
	return api.Delete(ctx, "dynamic", meta.DeleteOptions{})
}

func dynamicApply(ctx context.Context, it *suite) error {
	api := it.dynamic.Resource(certificatesResource).Namespace(it.namespace)
	applied, err := api.Apply(ctx, "applied", certificate("applied"), meta.ApplyOptions{FieldManager: "go"})
	if apierrors.IsUnsupportedMediaType(err) {
		return fmt.Errorf("%w: %v", errSkipped, err)
	}
	if err != nil {
		return err
	}
	fields := applied.GetManagedFields()
	if len(fields) == 0 || fields[0].Manager != "go" || fields[0].Operation != meta.ManagedFieldsOperationApply {
		return fmt.Errorf("nobody manages it: %+v", fields)
	}
	return nil
}

func dynamicInformer(ctx context.Context, it *suite) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	api := it.dynamic.Resource(certificatesResource).Namespace(it.namespace)
	only := func(options *meta.ListOptions) { options.FieldSelector = "metadata.name=informed" }
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(it.dynamic, time.Hour, it.namespace, only)
	heard := &counter{}
	if _, err := factory.ForResource(certificatesResource).Informer().AddEventHandler(heard.handler()); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if _, err := api.Create(ctx, certificate("informed"), meta.CreateOptions{}); err != nil {
		return err
	}
	if err := eventually(ctx, "ADDED", func() (bool, error) { return heard.added.Load() == 1, nil }); err != nil {
		return err
	}
	if err := api.Delete(ctx, "informed", meta.DeleteOptions{}); err != nil {
		return err
	}
	return eventually(ctx, "DELETED", func() (bool, error) { return heard.deleted.Load() == 1, nil })
}

func metadataInformer(ctx context.Context, it *suite) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	api := it.dynamic.Resource(certificatesResource).Namespace(it.namespace)
	if _, err := api.Create(ctx, certificate("sketched"), meta.CreateOptions{}); err != nil {
		return err
	}
	factory := metadatainformer.NewFilteredSharedInformerFactory(it.metadata, 0, it.namespace, nil)
	lister := factory.ForResource(certificatesResource).Lister()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	found, err := lister.ByNamespace(it.namespace).Get("sketched")
	if err != nil {
		return err
	}
	if _, ok := found.(*meta.PartialObjectMetadata); !ok {
		return fmt.Errorf("found a %T", found)
	}
	one, err := it.metadata.Resource(certificatesResource).Namespace(it.namespace).Get(ctx, "sketched", meta.GetOptions{})
	if err != nil {
		return err
	}
	if err := expect("name", one.Name, "sketched"); err != nil {
		return err
	}
	for _, exchange := range it.wire.find("GET", "/"+it.namespace+"/certificates") {
		if strings.HasPrefix(exchange.answered, "application/vnd.kubernetes.protobuf") {
			return nil
		}
	}
	return errors.New("no metadata came in protobuf")
}

func typedDefinition(ctx context.Context, it *suite) error {
	api := it.extensions.ApiextensionsV1().CustomResourceDefinitions()
	size := extensions.JSONSchemaProps{Type: "integer", Default: &extensions.JSON{Raw: []byte("3")}}
	spec := extensions.JSONSchemaProps{Type: "object", Properties: map[string]extensions.JSONSchemaProps{"size": size}}
	root := extensions.JSONSchemaProps{Type: "object", Properties: map[string]extensions.JSONSchemaProps{"spec": spec}}
	group := it.namespace + ".test"
	definition := &extensions.CustomResourceDefinition{ObjectMeta: named("widgets." + group), Spec: extensions.CustomResourceDefinitionSpec{
		Group: group, Scope: extensions.NamespaceScoped,
		Names:    extensions.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
		Versions: []extensions.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &extensions.CustomResourceValidation{OpenAPIV3Schema: &root}}},
	}}
	if _, err := api.Create(ctx, definition, meta.CreateOptions{}); err != nil {
		return err
	}
	defer func() { _ = api.Delete(context.WithoutCancel(ctx), definition.Name, meta.DeleteOptions{}) }()
	err := eventually(ctx, "Established", func() (bool, error) {
		found, err := api.Get(ctx, definition.Name, meta.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, condition := range found.Status.Conditions {
			if condition.Type == extensions.Established && condition.Status == extensions.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	widgets := it.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}).Namespace(it.namespace)
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"}, "spec": map[string]any{}}}
	made, err := widgets.Create(ctx, widget, meta.CreateOptions{})
	if err != nil {
		return err
	}
	defaulted, _, err := unstructured.NestedInt64(made.Object, "spec", "size")
	if err != nil {
		return err
	}
	return expect("default", defaulted, 3)
}
