package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
)

// controllerChecks are what a controller is made of.
func controllerChecks() []check {
	return []check{
		{"an informer opens with a streamed list and follows", informer},
		{"an informer of many objects", largeInformer},
		{"leader election hands over", leaderElection},
		{"Events by the core recorder, repeated ones counted", coreRecorder},
		{"Events by the recorder of events.k8s.io", newRecorder},
	}
}

// counter counts what an informer tells.
type counter struct{ added, updated, deleted atomic.Int32 }

func (c *counter) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.added.Add(1) },
		UpdateFunc: func(any, any) { c.updated.Add(1) },
		DeleteFunc: func(any) { c.deleted.Add(1) },
	}
}

func (c *counter) text() string {
	return fmt.Sprintf("%d added, %d updated, %d deleted", c.added.Load(), c.updated.Load(), c.deleted.Load())
}

// reach waits until so much has been told.
func (c *counter) reach(ctx context.Context, added, updated, deleted int32) error {
	err := eventually(ctx, "the informer", func() (bool, error) {
		return c.added.Load() == added && c.updated.Load() == updated && c.deleted.Load() == deleted, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, c.text())
	}
	return nil
}

func informer(ctx context.Context, it *suite) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	maps := it.typed.CoreV1().ConfigMaps(it.namespace)
	labelled := meta.ObjectMeta{Name: "watched", Labels: map[string]string{"informer": "yes"}}
	made, err := maps.Create(ctx, &core.ConfigMap{ObjectMeta: labelled, Data: map[string]string{"a": "1"}}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(it.typed, 0, informers.WithNamespace(it.namespace),
		informers.WithTweakListOptions(func(options *meta.ListOptions) { options.LabelSelector = "informer=yes" }))
	heard := &counter{}
	if _, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(heard.handler()); err != nil {
		return err
	}
	lister := factory.Core().V1().ConfigMaps().Lister()
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("%v never synced", kind)
		}
	}
	if err := heard.reach(ctx, 1, 0, 0); err != nil {
		return err
	}
	made.Data["a"] = "2"
	if made, err = maps.Update(ctx, made, meta.UpdateOptions{}); err != nil {
		return err
	}
	if err := heard.reach(ctx, 1, 1, 0); err != nil {
		return err
	}
	found, err := lister.ConfigMaps(it.namespace).Get("watched")
	if err != nil {
		return err
	}
	if err := expect("data in the cache", found.Data["a"], "2"); err != nil {
		return err
	}
	// What loses its label is gone for the informer.
	made.Labels = nil
	if _, err = maps.Update(ctx, made, meta.UpdateOptions{}); err != nil {
		return err
	}
	if err := heard.reach(ctx, 1, 1, 1); err != nil {
		return err
	}
	return it.streamedList("/" + it.namespace + "/configmaps")
}

// streamedList fails unless the collection was watched with its initial events, in protobuf, and never listed so.
func (it *suite) streamedList(suffix string) error {
	for _, one := range it.wire.find("GET", suffix) {
		if strings.Contains(one.query, "sendInitialEvents=true") {
			return expect("content type", one.answered, "application/vnd.kubernetes.protobuf;stream=watch")
		}
	}
	return fmt.Errorf("the informer did not open with a streamed list")
}

func largeInformer(ctx context.Context, it *suite) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	secrets := it.typed.CoreV1().Secrets(it.namespace)
	const many = 700
	for number := range many {
		labelled := meta.ObjectMeta{Name: fmt.Sprint("large-", number), Labels: map[string]string{"large": "yes"}}
		if _, err := secrets.Create(ctx, &core.Secret{ObjectMeta: labelled, Data: map[string][]byte{"k": make([]byte, 500)}}, meta.CreateOptions{}); err != nil {
			return err
		}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(it.typed, 0, informers.WithNamespace(it.namespace),
		informers.WithTweakListOptions(func(options *meta.ListOptions) { options.LabelSelector = "large=yes" }))
	lister := factory.Core().V1().Secrets().Lister()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	found, err := lister.List(labels.Everything())
	if err != nil {
		return err
	}
	if err := expect("secrets in the cache", len(found), many); err != nil {
		return err
	}
	listed, err := secrets.List(ctx, meta.ListOptions{LabelSelector: "large=yes"})
	if err != nil {
		return err
	}
	return expect("secrets in the list", len(listed.Items), many)
}

func leaderElection(ctx context.Context, it *suite) error {
	first, stopFirst := context.WithCancel(ctx)
	defer stopFirst()
	second, stopSecond := context.WithCancel(ctx)
	defer stopSecond()
	leading := make(chan string, 2)
	for name, within := range map[string]context.Context{"first": first, "second": second} {
		if name == "second" {
			continue
		}
		go it.campaign(within, name, leading)
	}
	if err := expect("leader", <-leading, "first"); err != nil {
		return err
	}
	go it.campaign(second, "second", leading)
	stopFirst()
	select {
	case name := <-leading:
		if err := expect("next leader", name, "second"); err != nil {
			return err
		}
	case <-ctx.Done():
		return fmt.Errorf("nobody took over")
	}
	lease, err := it.typed.CoordinationV1().Leases(it.namespace).Get(ctx, "election", meta.GetOptions{})
	if err != nil {
		return err
	}
	return expect("transitions", *lease.Spec.LeaseTransitions >= 1, true)
}

func (it *suite) campaign(ctx context.Context, name string, leading chan<- string) {
	lock := &resourcelock.LeaseLock{
		LeaseMeta: meta.ObjectMeta{Namespace: it.namespace, Name: "election"}, Client: it.typed.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: name},
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, ReleaseOnCancel: true, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 100 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { leading <- name }, OnStoppedLeading: func() {},
		},
	})
}

func (it *suite) subject(ctx context.Context, name string) (*core.ConfigMap, error) {
	return it.typed.CoreV1().ConfigMaps(it.namespace).Create(ctx, &core.ConfigMap{ObjectMeta: named(name)}, meta.CreateOptions{})
}

func coreRecorder(ctx context.Context, it *suite) error {
	about, err := it.subject(ctx, "core-events")
	if err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: it.typed.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, core.EventSource{Component: "go-test"})
	for range 3 {
		recorder.Event(about, core.EventTypeNormal, "Tested", "the same thing happened")
	}
	return eventually(ctx, "three Events that are one", func() (bool, error) {
		found, err := it.typed.CoreV1().Events(it.namespace).Search(scheme.Scheme, about)
		if err != nil || len(found.Items) == 0 {
			return false, err
		}
		return found.Items[0].Count == 3, nil
	})
}

func newRecorder(ctx context.Context, it *suite) error {
	about, err := it.subject(ctx, "new-events")
	if err != nil {
		return err
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: it.typed.EventsV1()})
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return err
	}
	var regarding runtime.Object = about
	broadcaster.NewRecorder(scheme.Scheme, "test/go").Eventf(regarding, nil, core.EventTypeWarning, "Tested", "Testing", "it is %s", "new")
	return eventually(ctx, "the Event", func() (bool, error) {
		found, err := it.typed.EventsV1().Events(it.namespace).List(ctx, meta.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, one := range found.Items {
			if one.Regarding.Name == "new-events" && one.Note == "it is new" {
				return true, nil
			}
		}
		return false, nil
	})
}
