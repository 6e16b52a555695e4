package main

import (
	"context"
	"encoding/json"
	"fmt"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
)

// typedChecks are what a typed client does with one object.
func typedChecks() []check {
	return []check{
		{"create, get, update and delete a ConfigMap", lifeOfAConfigMap},
		{"a Secret keeps its bytes", secretBytes},
		{"merge patch and strategic merge patch", patches},
		{"errors are told apart", errorKinds},
		{"delete with preconditions", preconditions},
		{"deletecollection by label", deleteCollection},
		{"dry run stores nothing", dryRun},
		{"lists in chunks", chunks},
		{"retry on conflict", retryOnConflict},
		{"server-side apply with an apply configuration", apply},
		{"generateName", generateName},
		{"update the status of a Namespace's life", namespaceLife},
	}
}

func lifeOfAConfigMap(ctx context.Context, it *suite) error {
	maps := it.typed.CoreV1().ConfigMaps(it.namespace)
	made, err := maps.Create(ctx, &core.ConfigMap{ObjectMeta: named("life"), Data: map[string]string{"key": "é"}}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	if made.UID == "" || made.ResourceVersion == "" || made.CreationTimestamp.IsZero() {
		return fmt.Errorf("the server left out what it sets: %+v", made.ObjectMeta)
	}
	got, err := maps.Get(ctx, "life", meta.GetOptions{})
	if err != nil {
		return err
	}
	got.Data["key"], got.BinaryData = "new", map[string][]byte{"raw": {0, 255}}
	updated, err := maps.Update(ctx, got, meta.UpdateOptions{})
	if err != nil {
		return err
	}
	if err := expect("data", updated.Data["key"]+string(updated.BinaryData["raw"]), "new\x00\xff"); err != nil {
		return err
	}
	if err := maps.Delete(ctx, "life", *meta.NewDeleteOptions(0)); err != nil {
		return err
	}
	_, err = maps.Get(ctx, "life", meta.GetOptions{})
	return expect("not found", apierrors.IsNotFound(err), true)
}

func secretBytes(ctx context.Context, it *suite) error {
	secrets := it.typed.CoreV1().Secrets(it.namespace)
	data := map[string][]byte{"tls.crt": {0, 1, 2, 255}, "tls.key": []byte("key")}
	secret := &core.Secret{ObjectMeta: named("bytes"), Type: core.SecretTypeTLS, Data: data, StringData: map[string]string{"text": "t"}}
	if _, err := secrets.Create(ctx, secret, meta.CreateOptions{}); err != nil {
		return err
	}
	found, err := secrets.Get(ctx, "bytes", meta.GetOptions{})
	if err != nil {
		return err
	}
	if err := expect("bytes", string(found.Data["tls.crt"])+string(found.Data["text"]), "\x00\x01\x02\xfft"); err != nil {
		return err
	}
	return expect("type", found.Type, core.SecretTypeTLS)
}

func patches(ctx context.Context, it *suite) error {
	maps := it.typed.CoreV1().ConfigMaps(it.namespace)
	if _, err := maps.Create(ctx, &core.ConfigMap{ObjectMeta: named("patched"), Data: map[string]string{"a": "1"}}, meta.CreateOptions{}); err != nil {
		return err
	}
	for kind, patch := range map[types.PatchType]string{
		types.MergePatchType:          `{"data":{"b":"2"}}`,
		types.StrategicMergePatchType: `{"metadata":{"labels":{"c":"3"}}}`,
		types.JSONPatchType:           `[{"op":"add","path":"/data/d","value":"4"}]`,
	} {
		if _, err := maps.Patch(ctx, "patched", kind, []byte(patch), meta.PatchOptions{}); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	found, err := maps.Get(ctx, "patched", meta.GetOptions{})
	if err != nil {
		return err
	}
	return expect("patched", found.Data["a"]+found.Data["b"]+found.Labels["c"]+found.Data["d"], "1234")
}

func errorKinds(ctx context.Context, it *suite) error {
	maps := it.typed.CoreV1().ConfigMaps(it.namespace)
	made, err := maps.Create(ctx, &core.ConfigMap{ObjectMeta: named("errors")}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	_, twice := maps.Create(ctx, &core.ConfigMap{ObjectMeta: named("errors")}, meta.CreateOptions{})
	made.Data = map[string]string{"a": "1"}
	if _, err := maps.Update(ctx, made, meta.UpdateOptions{}); err != nil {
		return err
	}
	_, stale := maps.Update(ctx, made, meta.UpdateOptions{})
	_, wrong := maps.Create(ctx, &core.ConfigMap{ObjectMeta: named("Not a name")}, meta.CreateOptions{})
	_, nowhere := it.typed.CoreV1().ConfigMaps("no-such-namespace").Create(ctx, &core.ConfigMap{ObjectMeta: named("x")}, meta.CreateOptions{})
	for what, holds := range map[string]bool{
		"AlreadyExists": apierrors.IsAlreadyExists(twice), "Conflict": apierrors.IsConflict(stale),
		"Invalid": apierrors.IsInvalid(wrong), "NotFound": apierrors.IsNotFound(nowhere),
	} {
		if !holds {
			return fmt.Errorf("no %s (%v; %v; %v; %v)", what, twice, stale, wrong, nowhere)
		}
	}
	return nil
}

func preconditions(ctx context.Context, it *suite) error {
	maps := it.typed.CoreV1().ConfigMaps(it.namespace)
	made, err := maps.Create(ctx, &core.ConfigMap{ObjectMeta: named("precious")}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	refused := maps.Delete(ctx, "precious", *meta.NewPreconditionDeleteOptions("another"))
	if !apierrors.IsConflict(refused) {
		return fmt.Errorf("deleted under a wrong uid: %v", refused)
	}
	return maps.Delete(ctx, "precious", *meta.NewPreconditionDeleteOptions(string(made.UID)))
}

func deleteCollection(ctx context.Context, it *suite) error {
	maps := it.typed.CoreV1().ConfigMaps(it.namespace)
	for number := range 4 {
		labelled := meta.ObjectMeta{Name: fmt.Sprint("many-", number), Labels: map[string]string{"odd": fmt.Sprint(number % 2)}}
		if _, err := maps.Create(ctx, &core.ConfigMap{ObjectMeta: labelled}, meta.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := maps.DeleteCollection(ctx, meta.DeleteOptions{}, meta.ListOptions{LabelSelector: "odd=1"}); err != nil {
		return err
	}
	left, err := maps.List(ctx, meta.ListOptions{LabelSelector: "odd in (0, 1)"})
	if err != nil {
		return err
	}
	return expect("left", len(left.Items), 2)
}

func dryRun(ctx context.Context, it *suite) error {
	maps := it.typed.CoreV1().ConfigMaps(it.namespace)
	options := meta.CreateOptions{DryRun: []string{meta.DryRunAll}}
	if _, err := maps.Create(ctx, &core.ConfigMap{ObjectMeta: named("dry")}, options); err != nil {
		return err
	}
	_, err := maps.Get(ctx, "dry", meta.GetOptions{})
	return expect("not found", apierrors.IsNotFound(err), true)
}

func chunks(ctx context.Context, it *suite) error {
	secrets := it.typed.CoreV1().Secrets(it.namespace)
	for number := range 25 {
		labelled := meta.ObjectMeta{Name: fmt.Sprint("chunk-", number), Labels: map[string]string{"chunk": "yes"}}
		if _, err := secrets.Create(ctx, &core.Secret{ObjectMeta: labelled}, meta.CreateOptions{}); err != nil {
			return err
		}
	}
	pages := pager.New(func(ctx context.Context, options meta.ListOptions) (runtime.Object, error) {
		return secrets.List(ctx, options)
	})
	pages.PageSize = 10
	count := 0
	err := pages.EachListItem(ctx, meta.ListOptions{LabelSelector: "chunk=yes"}, func(runtime.Object) error {
		count++
		return nil
	})
	if err != nil {
		return err
	}
	return expect("secrets", count, 25)
}

func retryOnConflict(ctx context.Context, it *suite) error {
	leases := it.typed.CoordinationV1().Leases(it.namespace)
	if _, err := leases.Create(ctx, &coordination.Lease{ObjectMeta: named("contended")}, meta.CreateOptions{}); err != nil {
		return err
	}
	results := make(chan error)
	for number := range 4 {
		go func() {
			results <- retry.RetryOnConflict(retry.DefaultRetry, func() error {
				lease, err := leases.Get(ctx, "contended", meta.GetOptions{})
				if err != nil {
					return err
				}
				if lease.Annotations == nil {
					lease.Annotations = map[string]string{}
				}
				lease.Annotations[fmt.Sprint(number)] = "here"
				now := meta.NowMicro()
				lease.Spec.RenewTime = &now
				_, err = leases.Update(ctx, lease, meta.UpdateOptions{})
				return err
			})
		}()
	}
	for range 4 {
		if err := <-results; err != nil {
			return err
		}
	}
	lease, err := leases.Get(ctx, "contended", meta.GetOptions{})
	if err != nil {
		return err
	}
	return expect("annotations", len(lease.Annotations), 4)
}

func apply(ctx context.Context, it *suite) error {
	maps := it.typed.CoreV1().ConfigMaps(it.namespace)
	wanted := applycore.ConfigMap("applied", it.namespace).WithData(map[string]string{"a": "1"})
	first, err := maps.Apply(ctx, wanted, meta.ApplyOptions{FieldManager: "one"})
	if apierrors.IsUnsupportedMediaType(err) {
		return fmt.Errorf("%w: %v", errSkipped, err)
	}
	if err != nil {
		return err
	}
	if err := expect("managers", len(first.ManagedFields), 1); err != nil {
		return err
	}
	other := applycore.ConfigMap("applied", it.namespace).WithData(map[string]string{"a": "2"})
	if _, err := maps.Apply(ctx, other, meta.ApplyOptions{FieldManager: "two"}); !apierrors.IsConflict(err) {
		return fmt.Errorf("no conflict: %v", err)
	}
	forced, err := maps.Apply(ctx, other, meta.ApplyOptions{FieldManager: "two", Force: true})
	if err != nil {
		return err
	}
	owned, err := applycore.ExtractConfigMap(forced, "two")
	if err != nil {
		return err
	}
	return expect("owned", owned.Data["a"], "2")
}

func generateName(ctx context.Context, it *suite) error {
	made, err := it.typed.CoreV1().ConfigMaps(it.namespace).Create(
		ctx, &core.ConfigMap{ObjectMeta: meta.ObjectMeta{GenerateName: "gen-"}}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	return expect("length of the name", len(made.Name), len("gen-")+5)
}

func namespaceLife(ctx context.Context, it *suite) error {
	namespaces := it.typed.CoreV1().Namespaces()
	name := it.namespace + "-life"
	if _, err := namespaces.Create(ctx, &core.Namespace{ObjectMeta: named(name)}, meta.CreateOptions{}); err != nil {
		return err
	}
	if _, err := it.typed.CoreV1().ConfigMaps(name).Create(ctx, &core.ConfigMap{ObjectMeta: named("inside")}, meta.CreateOptions{}); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{"a": "b"}}})
	if err != nil {
		return err
	}
	if _, err := namespaces.Patch(ctx, name, types.MergePatchType, patch, meta.PatchOptions{}); err != nil {
		return err
	}
	if err := namespaces.Delete(ctx, name, meta.DeleteOptions{}); err != nil {
		return err
	}
	return eventually(ctx, "the namespace to go", func() (bool, error) {
		_, err := namespaces.Get(ctx, name, meta.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
}
