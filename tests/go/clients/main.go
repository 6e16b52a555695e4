// Command clients does with a server what controllers written in Go do, and prints a line for each check:
// `ok name`, `skip name: why` or `FAIL name: why`. It takes the path of a kubeconfig, and ends with 1 when a check failed.
//
// It uses client-go as everybody gets it: typed clients speak protobuf, informers open with a watch that streams the
// list, custom kinds go through the dynamic client.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

const patience = 20 * time.Second

// errSkipped is wrapped by checks of what a server may lack.
var errSkipped = errors.New("not there")

// suite is what checks work with: clients, and a namespace of their own.
type suite struct {
	config     *rest.Config
	typed      *kubernetes.Clientset
	dynamic    *dynamic.DynamicClient
	metadata   metadata.Interface
	extensions *apiextensions.Clientset
	namespace  string
	wire       *wire
}

type check struct {
	name string
	run  func(context.Context, *suite) error
}

// wire notes what was asked, and in which form.
type wire struct {
	mu      sync.Mutex
	seen    []exchange
	wrapped http.RoundTripper
}

type exchange struct {
	method, path, query, sent, answered string
}

func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := w.wrapped.RoundTrip(request)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seen = append(w.seen, exchange{
			request.Method, request.URL.Path, request.URL.RawQuery,
			request.Header.Get("Content-Type"), response.Header.Get("Content-Type"),
		})
	}
	return response, err
}

// find returns the exchanges whose path ends like this.
func (w *wire) find(method, suffix string) []exchange {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := []exchange{}
	for _, one := range w.seen {
		if one.method == method && strings.HasSuffix(one.path, suffix) {
			found = append(found, one)
		}
	}
	return found
}

func main() {
	only := flag.String("run", "", "only checks whose name contains this")
	flag.Parse()
	klog.SetOutput(os.Stderr)
	if flag.NArg() != 1 {
		log.Fatal("say which kubeconfig")
	}
	ctx := context.Background()
	it, err := newSuite(flag.Arg(0))
	if err == nil {
		err = it.prepare(ctx)
	}
	if err != nil {
		log.Fatalf("cannot begin: %v", err)
	}
	failed := false
	for _, one := range allChecks() {
		if !strings.Contains(one.name, *only) {
			continue
		}
		within, cancel := context.WithTimeout(ctx, patience)
		err := one.run(within, it)
		cancel()
		switch {
		case err == nil:
			fmt.Printf("ok %s\n", one.name)
		case errors.Is(err, errSkipped):
			fmt.Printf("skip %s: %v\n", one.name, err)
		default:
			failed = true
			fmt.Printf("FAIL %s: %s\n", one.name, strings.ReplaceAll(err.Error(), "\n", " "))
		}
	}
	if failed {
		os.Exit(1)
	}
}

func allChecks() []check {
	checks := []check{}
	for _, some := range [][]check{typedChecks(), kindChecks(), controllerChecks(), dynamicChecks(), accessChecks(), wireChecks()} {
		checks = append(checks, some...)
	}
	return checks
}

func newSuite(kubeconfig string) (*suite, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	it := &suite{config: config, wire: &wire{}, namespace: fmt.Sprintf("go-%d", os.Getpid())}
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		it.wire.wrapped = inner
		return it.wire
	})
	if it.typed, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if it.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	if it.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, err
	}
	it.extensions, err = apiextensions.NewForConfig(config)
	return it, err
}

func (it *suite) prepare(ctx context.Context) error {
	namespace := &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: it.namespace}}
	_, err := it.typed.CoreV1().Namespaces().Create(ctx, namespace, meta.CreateOptions{})
	return err
}

// eventually asks again until the answer is yes.
func eventually(ctx context.Context, what string, ask func() (bool, error)) error {
	for {
		yes, err := ask()
		if err != nil || yes {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("in vain waited for %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func expect[T comparable](what string, found, wanted T) error {
	if found != wanted {
		return fmt.Errorf("%s: found %v, wanted %v", what, found, wanted)
	}
	return nil
}

func named(name string) meta.ObjectMeta { return meta.ObjectMeta{Name: name} }
