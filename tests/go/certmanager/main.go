// cert-manager's controllers of Certificates, without ACME, as one program for tests:
// cert-manager-controller KUBECONFIG. It ends when its standard input does, so that it never outlives the test
// that started it. The released command is a module whose replace directives keep Go from installing it by name.
package main

import (
	"context"
	"io"
	"log"
	"os"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/metrics"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

// The defaults of the released command, except for the client's limits: the server is what is measured.
const (
	workers                 = 5
	requestsPerSecond       = 10_000
	clusterNamespace        = "kube-system"
	minimumBackoff          = time.Hour
	maximumBackoff          = 32 * time.Hour
	maxConcurrentChallenges = 60
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: cert-manager-controller KUBECONFIG")
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := run(ctx, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:         kubeconfig,
		KubernetesAPIQPS:   requestsPerSecond,
		KubernetesAPIBurst: requestsPerSecond,
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: clusterNamespace},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: minimumBackoff,
			CertificateRequestMaximumBackoffDuration: maximumBackoff,
		},
		SchedulerOptions: controller.SchedulerOptions{MaxConcurrentChallenges: maxConcurrentChallenges},
	})
	if err != nil {
		return err
	}
	ended := make(chan error)
	running := 0
	for name, construct := range controller.Known() {
		loop, err := construct(factory)
		if err != nil {
			return err
		}
		log.Printf("starting controller %s", name)
		running++
		go func() { ended <- loop.Run(workers, ctx) }()
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	shared.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	for ; running > 0; running-- {
		if err := <-ended; err != nil {
			return err
		}
	}
	return nil
}
