package main

import (
	"context"
	"fmt"
	"reflect"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	networking "k8s.io/api/networking/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// client is what every typed client of client-go offers.
type client[T meta.Object] interface {
	Create(context.Context, T, meta.CreateOptions) (T, error)
	Get(context.Context, string, meta.GetOptions) (T, error)
	Update(context.Context, T, meta.UpdateOptions) (T, error)
	Delete(context.Context, string, meta.DeleteOptions) error
	Watch(context.Context, meta.ListOptions) (watch.Interface, error)
}

// lifecycle creates, watches, labels and deletes an object of any kind.
func lifecycle[T meta.Object](kind string, clients func(*suite) client[T], object T) check {
	return check{"life of one " + kind, func(ctx context.Context, it *suite) error {
		name := "go-" + fmt.Sprintf("%.20s", it.namespace) + "-kind"
		if object.GetName() != "" {
			name = object.GetName()
		}
		object.SetName(name)
		api := clients(it)
		watching, err := api.Watch(ctx, meta.ListOptions{FieldSelector: "metadata.name=" + name})
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		defer watching.Stop()
		made, err := api.Create(ctx, object, meta.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create: %w", err)
		}
		for _, part := range []string{"Spec", "Data", "Rules", "Webhooks", "Subsets", "Endpoints"} {
			sent, got := reflect.ValueOf(object).Elem().FieldByName(part), reflect.ValueOf(made).Elem().FieldByName(part)
			if sent.IsValid() && sent.Kind() == reflect.Slice && sent.Len() != got.Len() {
				return fmt.Errorf("%s: %d sent, %d came back", part, sent.Len(), got.Len())
			}
		}
		made.SetLabels(map[string]string{"touched": "yes"})
		if _, err := api.Update(ctx, made, meta.UpdateOptions{}); err != nil {
			return fmt.Errorf("update: %w", err)
		}
		if err := api.Delete(ctx, name, meta.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
		for _, wanted := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
			select {
			case event := <-watching.ResultChan():
				if event.Type != wanted {
					return fmt.Errorf("watch: %s instead of %s: %+v", event.Type, wanted, event.Object)
				}
			case <-ctx.Done():
				return fmt.Errorf("watch: in vain waited for %s", wanted)
			}
		}
		if _, err := api.Get(ctx, name, meta.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("still there after its deletion: %v", err)
		}
		return nil
	}}
}

// kindChecks take one object of each built-in kind through its life.
func kindChecks() []check {
	path, prefix := "/", networking.PathTypePrefix
	port := int32(443)
	backend := networking.IngressBackend{Service: &networking.IngressServiceBackend{Name: "s", Port: networking.ServiceBackendPort{Number: 80}}}
	rule := []rbac.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}
	ref := rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: "view"}
	subjects := []rbac.Subject{{Kind: "User", APIGroup: rbac.GroupName, Name: "somebody"}}
	pod := core.PodSpec{Containers: []core.Container{{Name: "c", Image: "i"}}}
	url, none, fail := "https://127.0.0.1:1/", admissionregistration.SideEffectClassNone, admissionregistration.Ignore
	nothing := []admissionregistration.RuleWithOperations{{
		Operations: []admissionregistration.OperationType{admissionregistration.Create},
		Rule:       admissionregistration.Rule{APIGroups: []string{"nowhere.test"}, APIVersions: []string{"v1"}, Resources: []string{"things"}},
	}}
	hook := admissionregistration.WebhookClientConfig{URL: &url}
	return []check{
		lifecycle("Secret", func(it *suite) client[*core.Secret] { return it.typed.CoreV1().Secrets(it.namespace) }, &core.Secret{}),
		lifecycle("ServiceAccount", func(it *suite) client[*core.ServiceAccount] { return it.typed.CoreV1().ServiceAccounts(it.namespace) }, &core.ServiceAccount{}),
		lifecycle("Lease", func(it *suite) client[*coordination.Lease] { return it.typed.CoordinationV1().Leases(it.namespace) }, &coordination.Lease{}),
		lifecycle("Service", func(it *suite) client[*core.Service] { return it.typed.CoreV1().Services(it.namespace) },
			&core.Service{Spec: core.ServiceSpec{Ports: []core.ServicePort{{Port: 443}}}}),
		lifecycle("Endpoints", func(it *suite) client[*core.Endpoints] { return it.typed.CoreV1().Endpoints(it.namespace) },
			&core.Endpoints{Subsets: []core.EndpointSubset{{Addresses: []core.EndpointAddress{{IP: "192.0.2.1"}}, Ports: []core.EndpointPort{{Port: 443}}}}}),
		lifecycle("EndpointSlice", func(it *suite) client[*discovery.EndpointSlice] {
			return it.typed.DiscoveryV1().EndpointSlices(it.namespace)
		},
			&discovery.EndpointSlice{AddressType: discovery.AddressTypeIPv4, Endpoints: []discovery.Endpoint{{Addresses: []string{"192.0.2.1"}}}, Ports: []discovery.EndpointPort{{Port: &port}}}),
		lifecycle("Ingress", func(it *suite) client[*networking.Ingress] { return it.typed.NetworkingV1().Ingresses(it.namespace) },
			&networking.Ingress{Spec: networking.IngressSpec{Rules: []networking.IngressRule{{Host: "example.com", IngressRuleValue: networking.IngressRuleValue{
				HTTP: &networking.HTTPIngressRuleValue{Paths: []networking.HTTPIngressPath{{Path: path, PathType: &prefix, Backend: backend}}}}}}}}),
		lifecycle("Pod", func(it *suite) client[*core.Pod] { return it.typed.CoreV1().Pods(it.namespace) }, &core.Pod{Spec: pod}),
		lifecycle("Role", func(it *suite) client[*rbac.Role] { return it.typed.RbacV1().Roles(it.namespace) }, &rbac.Role{Rules: rule}),
		lifecycle("RoleBinding", func(it *suite) client[*rbac.RoleBinding] { return it.typed.RbacV1().RoleBindings(it.namespace) }, &rbac.RoleBinding{RoleRef: ref, Subjects: subjects}),
		lifecycle("ClusterRole", func(it *suite) client[*rbac.ClusterRole] { return it.typed.RbacV1().ClusterRoles() }, &rbac.ClusterRole{Rules: rule}),
		lifecycle("ClusterRoleBinding", func(it *suite) client[*rbac.ClusterRoleBinding] { return it.typed.RbacV1().ClusterRoleBindings() }, &rbac.ClusterRoleBinding{RoleRef: ref, Subjects: subjects}),
		{"life of one Event of events.k8s.io", eventLife},
		lifecycle("ValidatingWebhookConfiguration", func(it *suite) client[*admissionregistration.ValidatingWebhookConfiguration] {
			return it.typed.AdmissionregistrationV1().ValidatingWebhookConfigurations()
		}, &admissionregistration.ValidatingWebhookConfiguration{Webhooks: []admissionregistration.ValidatingWebhook{{
			Name: "a.nowhere.test", ClientConfig: hook, Rules: nothing, SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"}}}}),
		lifecycle("MutatingWebhookConfiguration", func(it *suite) client[*admissionregistration.MutatingWebhookConfiguration] {
			return it.typed.AdmissionregistrationV1().MutatingWebhookConfigurations()
		}, &admissionregistration.MutatingWebhookConfiguration{Webhooks: []admissionregistration.MutatingWebhook{{
			Name: "a.nowhere.test", ClientConfig: hook, Rules: nothing, SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"}}}}),
		{"a CertificateSigningRequest is approved and signed", signingRequest},
	}
}

func signingRequest(ctx context.Context, it *suite) error {
	requests := it.typed.CertificatesV1().CertificateSigningRequests()
	request := &certificates.CertificateSigningRequest{ObjectMeta: named(it.namespace), Spec: certificates.CertificateSigningRequestSpec{
		Request: newRequest(), SignerName: "nowhere.test/signer", Usages: []certificates.KeyUsage{certificates.UsageClientAuth}}}
	made, err := requests.Create(ctx, request, meta.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if made.Spec.Username == "" {
		return fmt.Errorf("nobody asked: %+v", made.Spec)
	}
	made.Status.Conditions = []certificates.CertificateSigningRequestCondition{
		{Type: certificates.CertificateApproved, Status: core.ConditionTrue, Reason: "Tested", Message: "why not"}}
	approved, err := requests.UpdateApproval(ctx, it.namespace, made, meta.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("approve: %w", err)
	}
	if err := expect("conditions", len(approved.Status.Conditions), 1); err != nil {
		return err
	}
	approved.Status.Certificate = newCertificate()
	signed, err := requests.UpdateStatus(ctx, approved, meta.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	if err := expect("certificate", string(signed.Status.Certificate), string(approved.Status.Certificate)); err != nil {
		return err
	}
	return requests.Delete(ctx, it.namespace, meta.DeleteOptions{})
}

func eventLife(ctx context.Context, it *suite) error {
	clients := func(it *suite) client[*events.Event] { return it.typed.EventsV1().Events(it.namespace) }
	event := &events.Event{
		EventTime: meta.NowMicro(), ReportingController: "test/go", ReportingInstance: "go", Action: "Test", Reason: "Tested",
		Type: core.EventTypeNormal, Regarding: core.ObjectReference{Kind: "ConfigMap", Namespace: it.namespace, Name: "any"},
	}
	return lifecycle("Event", clients, event).run(ctx, it)
}
