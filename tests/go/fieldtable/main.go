// Command fieldtable prints how Kubernetes' own Go types lie in protobuf and in JSON, and test vectors of them.
//
//	go run ./fieldtable fields  > fields.json
//	go run ./fieldtable vectors > vectors.jsonl
//
// Everything is read off the types by reflection; the bytes of the vectors are made by client-go's serializer.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	batch "k8s.io/api/batch/v1"
	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	networking "k8s.io/api/networking/v1"
	node "k8s.io/api/node/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	scheduling "k8s.io/api/scheduling/v1"
	storage "k8s.io/api/storage/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Groups whose every kind goes into the table.
var groups = []func(*runtime.Scheme) error{
	admissionregistration.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme,
	apps.AddToScheme, authentication.AddToScheme, authorization.AddToScheme, autoscaling.AddToScheme,
	batch.AddToScheme, certificates.AddToScheme, coordination.AddToScheme, core.AddToScheme,
	discovery.AddToScheme, events.AddToScheme, flowcontrol.AddToScheme, networking.AddToScheme,
	node.AddToScheme, policy.AddToScheme, rbac.AddToScheme, scheduling.AddToScheme, storage.AddToScheme,
}

// Kinds that every group version has; clients name them with the version of whatever they talk about.
var everywhere = map[string]runtime.Object{
	"CreateOptions": &meta.CreateOptions{}, "DeleteOptions": &meta.DeleteOptions{},
	"GetOptions": &meta.GetOptions{}, "ListOptions": &meta.ListOptions{},
	"PatchOptions": &meta.PatchOptions{}, "UpdateOptions": &meta.UpdateOptions{},
	"Status": &meta.Status{}, "PartialObjectMetadata": &meta.PartialObjectMetadata{},
	"PartialObjectMetadataList": &meta.PartialObjectMetadataList{},
}

type field struct {
	Number int    `json:"n"`
	JSON   string `json:"json"`
	Type   string `json:"type"`
	// Of: repeated, map, pointer, omitempty, omitzero, inline.
	Flags []string `json:"flags,omitempty"`
}

type table struct {
	Kinds    map[string]string  `json:"kinds"`
	Messages map[string][]field `json:"messages"`
}

// Types that lie in JSON otherwise than field by field.
var special = map[string]string{
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":                                             "Time",
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":                                        "MicroTime",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":                                         "Duration",
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":                                         "Raw",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":                                          "Raw",
	"k8s.io/apimachinery/pkg/api/resource.Quantity":                                         "Quantity",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString":                                       "IntOrString",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON":                         "Raw",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray":       "SchemaOrArray",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool":        "SchemaOrBool",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray": "SchemaOrStrings",
}

func main() {
	if len(os.Args) != 2 || (os.Args[1] != "fields" && os.Args[1] != "vectors") {
		log.Fatal("say `fields` or `vectors`")
	}
	scheme := runtime.NewScheme()
	for _, add := range groups {
		if err := add(scheme); err != nil {
			log.Fatal(err)
		}
	}
	kinds := served(scheme)
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	if os.Args[1] == "vectors" {
		writeVectors(encoder, kinds)
		return
	}
	found := table{Kinds: map[string]string{}, Messages: map[string][]field{}}
	for kind, goType := range kinds {
		found.Kinds[kind] = found.message(goType)
	}
	if err := encoder.Encode(found); err != nil {
		log.Fatal(err)
	}
}

// served maps "group/version Kind" (no group version: every one) to the Go type.
func served(scheme *runtime.Scheme) map[string]reflect.Type {
	kinds := map[string]reflect.Type{}
	for gvk, goType := range scheme.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal || strings.HasSuffix(gvk.Kind, "Options") ||
			everywhere[gvk.Kind] != nil || gvk.Kind == "WatchEvent" || strings.HasPrefix(gvk.Kind, "API") && gvk.Version == "v1" && gvk.Group == "" {
			continue
		}
		kinds[gvk.GroupVersion().String()+" "+gvk.Kind] = goType
	}
	for kind, object := range everywhere {
		kinds[kind] = reflect.TypeOf(object).Elem()
	}
	return kinds
}

func name(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	return strings.Join(parts[max(0, len(parts)-2):], ".") + "." + t.Name()
}

func (found table) message(t reflect.Type) string {
	called := name(t)
	if _, known := found.Messages[called]; known {
		return called
	}
	found.Messages[called] = nil // it may hold itself
	fields := []field{}
	if t.Kind() == reflect.Slice {
		fields = append(fields, field{Number: 1, Type: found.scalar(t.Elem()), Flags: []string{"repeated", "list"}})
	} else {
		for index := range t.NumField() {
			if one, ok := found.field(t.Field(index)); ok {
				fields = append(fields, one)
			}
		}
	}
	sort.Slice(fields, func(i, j int) bool { return fields[i].Number < fields[j].Number })
	found.Messages[called] = fields
	return called
}

func (found table) field(f reflect.StructField) (field, bool) {
	tag := f.Tag.Get("protobuf")
	if tag == "" {
		return field{}, false
	}
	number, err := strconv.Atoi(strings.Split(tag, ",")[1])
	if err != nil {
		log.Fatalf("%s: %v", f.Name, err)
	}
	parts := strings.Split(f.Tag.Get("json"), ",")
	one := field{Number: number, JSON: parts[0]}
	for _, option := range parts[1:] {
		if option == "omitempty" || option == "omitzero" || option == "inline" {
			one.Flags = append(one.Flags, option)
		}
	}
	if parts[0] == "" && f.Anonymous && !strings.Contains(f.Tag.Get("json"), "inline") {
		one.Flags = append(one.Flags, "inline")
	}
	t := f.Type
	if t.Kind() == reflect.Pointer {
		one.Flags = append(one.Flags, "pointer")
		t = t.Elem()
	}
	switch {
	case special[t.PkgPath()+"."+t.Name()] != "":
	case t.Kind() == reflect.Slice && isMessage(f.Type, tag):
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		one.Flags = append(one.Flags, "repeated")
		t = t.Elem()
	case t.Kind() == reflect.Map:
		if t.Key().Kind() != reflect.String {
			log.Fatalf("%s: keys that are no strings", f.Name)
		}
		one.Flags = append(one.Flags, "map")
		t = t.Elem()
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	one.Type = found.scalar(t)
	return one, true
}

// isMessage tells a list that is wrapped in a message of its own: its field is not marked as repeated.
func isMessage(t reflect.Type, tag string) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath() != "" && t.Elem().Kind() != reflect.Uint8 && !strings.Contains(tag, ",rep,")
}

func (found table) scalar(t reflect.Type) string {
	if named := special[t.PkgPath()+"."+t.Name()]; named != "" {
		if strings.HasPrefix(named, "Schema") {
			found.message(reflect.TypeOf(apiextensions.JSONSchemaProps{}))
		}
		return named
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64, reflect.Float64:
		return t.Kind().String()
	case reflect.Struct:
		return found.message(t)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return found.message(t)
	}
	log.Fatal(fmt.Sprintf("nobody knows %v", t))
	return ""
}
