package main

import (
	"context"
	"fmt"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// accessChecks are about who may do what.
func accessChecks() []check {
	return []check{
		{"SelfSubjectReview says who I am", whoAmI},
		{"SelfSubjectAccessReview and SubjectAccessReview", accessReviews},
		{"SelfSubjectRulesReview", rulesReview},
		{"TokenRequest, and the token is believed", tokenRequest},
	}
}

func whoAmI(ctx context.Context, it *suite) error {
	found, err := it.typed.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authentication.SelfSubjectReview{}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	return expect("has a name", found.Status.UserInfo.Username != "", true)
}

func accessReviews(ctx context.Context, it *suite) error {
	asked := authorization.ResourceAttributes{Namespace: it.namespace, Verb: "create", Resource: "secrets"}
	self, err := it.typed.AuthorizationV1().SelfSubjectAccessReviews().Create(
		ctx, &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: &asked}}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	if err := expect("allowed", self.Status.Allowed, true); err != nil {
		return err
	}
	other, err := it.typed.AuthorizationV1().SubjectAccessReviews().Create(
		ctx, &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{User: "nobody", ResourceAttributes: &asked}}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	return expect("nobody allowed", other.Status.Allowed, false)
}

func rulesReview(ctx context.Context, it *suite) error {
	review := &authorization.SelfSubjectRulesReview{Spec: authorization.SelfSubjectRulesReviewSpec{Namespace: it.namespace}}
	found, err := it.typed.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, review, meta.CreateOptions{})
	if err != nil {
		return err
	}
	return expect("has rules", len(found.Status.ResourceRules) > 0, true)
}

func tokenRequest(ctx context.Context, it *suite) error {
	accounts := it.typed.CoreV1().ServiceAccounts(it.namespace)
	if _, err := accounts.Create(ctx, &core.ServiceAccount{ObjectMeta: named("robot")}, meta.CreateOptions{}); err != nil {
		return err
	}
	seconds := int64(600)
	request := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{ExpirationSeconds: &seconds}}
	issued, err := accounts.CreateToken(ctx, "robot", request, meta.CreateOptions{})
	if err != nil {
		return err
	}
	if issued.Status.Token == "" || issued.Status.ExpirationTimestamp.IsZero() {
		return fmt.Errorf("no token: %+v", issued.Spec)
	}
	review, err := it.typed.AuthenticationV1().TokenReviews().Create(
		ctx, &authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: issued.Status.Token}}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	if err := expect("user", review.Status.User.Username, "system:serviceaccount:"+it.namespace+":robot"); err != nil {
		return err
	}
	config := rest.AnonymousClientConfig(it.config)
	config.BearerToken = issued.Status.Token
	robot, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = robot.CoreV1().Secrets(it.namespace).List(ctx, meta.ListOptions{})
	return expect("forbidden", apierrors.IsForbidden(err), true)
}
