// Command openapi prints the OpenAPI documents that Kubernetes makes of CustomResourceDefinitions.
//
// It reads a list of definitions as JSON and writes, for each version, the documents of v2 and v3 without
// their descriptions.
package main

import (
	"encoding/json"
	"log"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/kube-openapi/pkg/handler"
)

func main() {
	var crds []*apiextensionsv1.CustomResourceDefinition
	if err := json.NewDecoder(os.Stdin).Decode(&crds); err != nil {
		log.Fatal(err)
	}
	out := map[string]any{}
	for _, crd := range crds {
		apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		if crd.Spec.Names.ListKind == "" {
			crd.Spec.Names.ListKind = crd.Spec.Names.Kind + "List"
		}
		for _, version := range crd.Spec.Versions {
			if !version.Served {
				continue
			}
			v3, err := builder.BuildOpenAPIV3(crd, version.Name, builder.Options{V2: false, IncludeSelectableFields: true})
			if err != nil {
				log.Fatal(err)
			}
			v2, err := builder.BuildOpenAPIV2(crd, version.Name, builder.Options{V2: true, IncludeSelectableFields: true})
			if err != nil {
				log.Fatal(err)
			}
			v2.Definitions = handler.PruneDefaults(v2.Definitions)
			out[crd.Spec.Group+"/"+version.Name+"/"+crd.Spec.Names.Plural] = map[string]any{"v2": v2, "v3": v3}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		log.Fatal(err)
	}
}
