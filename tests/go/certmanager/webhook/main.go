// A DNS-01 webhook on cert-manager's own framework, for tests: an extension API server of k8s.io/apiserver that
// trusts the front proxy of the ConfigMap extension-apiserver-authentication. Its solver accepts every challenge.
package main

import (
	"github.com/cert-manager/cert-manager/pkg/acme/webhook/apis/acme/v1alpha1"
	"github.com/cert-manager/cert-manager/pkg/acme/webhook/cmd"
	"k8s.io/client-go/rest"
)

type solver struct{}

func (solver) Name() string                                   { return "records" }
func (solver) Initialize(*rest.Config, <-chan struct{}) error { return nil }
func (solver) Present(*v1alpha1.ChallengeRequest) error       { return nil }
func (solver) CleanUp(*v1alpha1.ChallengeRequest) error       { return nil }

func main() {
	cmd.RunWebhookServer("acme.example.org", solver{})
}
