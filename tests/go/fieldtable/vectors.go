package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"reflect"
	"sort"
	"strings"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
)

type vector struct {
	Case     string          `json:"case"`
	JSON     json.RawMessage `json:"json"`
	Protobuf []byte          `json:"protobuf"`
}

// Deep enough for every field of every kind; schemas hold schemas, and could go on for ever.
const maxSchemas = 2

func writeVectors(encoder *json.Encoder, kinds map[string]reflect.Type) {
	names := []string{}
	for name := range kinds {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		apiVersion, kind, versioned := strings.Cut(name, " ")
		if !versioned {
			apiVersion, kind = "meta.k8s.io/v1", name
		}
		if kind == "List" || kind == "ConversionReview" || kind == "SerializedReference" || kind == "RangeAllocation" {
			continue // never stored and never sent to a server
		}
		for _, full := range []bool{false, true} {
			object := reflect.New(kinds[name])
			if full {
				fill(object.Elem(), "", 0)
			}
			one := object.Interface().(runtime.Object)
			one.GetObjectKind().SetGroupVersionKind(meta.SchemeGroupVersion.WithKind(kind))
			object.Elem().FieldByName("TypeMeta").Set(reflect.ValueOf(meta.TypeMeta{Kind: kind, APIVersion: apiVersion}))
			if err := encoder.Encode(encoded(one, full)); err != nil {
				log.Fatal(err)
			}
		}
	}
}

func encoded(object runtime.Object, full bool) vector {
	text, err := json.Marshal(object)
	if err != nil {
		log.Fatalf("%T: %v", object, err)
	}
	var out bytes.Buffer
	if err := protobuf.NewSerializer(nil, nil).Encode(object, &out); err != nil {
		log.Fatalf("%T: %v", object, err)
	}
	title := "empty"
	if full {
		title = "every field set"
	}
	return vector{Case: title, JSON: text, Protobuf: out.Bytes()}
}

var moment = time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)

// fill sets every field, to a value that says where it stands.
func fill(value reflect.Value, name string, schemas int) {
	switch typed := value.Addr().Interface().(type) {
	case *meta.TypeMeta:
		return
	case *meta.Time:
		*typed = meta.NewTime(moment.Truncate(time.Second))
	case *meta.MicroTime:
		*typed = meta.NewMicroTime(moment)
	case *meta.Duration:
		*typed = meta.Duration{Duration: 90*time.Minute + 1500*time.Millisecond}
	case *resource.Quantity:
		*typed = resource.MustParse("100Mi")
	case *intstr.IntOrString:
		*typed = intstr.FromString("s-" + name)
	case *meta.FieldsV1:
		*typed = *meta.NewFieldsV1(`{"f:data":{}}`)
	case *runtime.RawExtension:
		typed.Raw = []byte(`{"a":[1,"x",null,1.5]}`)
	case *apiextensions.JSON:
		typed.Raw = []byte(`{"a":[1,"x",null,1.5]}`)
	case *apiextensions.JSONSchemaPropsOrArray:
		typed.Schema = &apiextensions.JSONSchemaProps{}
		fillField(reflect.ValueOf(typed).Elem().FieldByName("Schema"), name, schemas)
	case *apiextensions.JSONSchemaPropsOrBool:
		typed.Allows = true
		fillField(reflect.ValueOf(typed).Elem().FieldByName("Schema"), name, schemas)
	case *apiextensions.JSONSchemaPropsOrStringArray:
		typed.Property = []string{"a", "b"}
	case *apiextensions.JSONSchemaProps:
		if schemas == maxSchemas {
			typed.Type = "string"
			return
		}
		fillStruct(value, schemas+1)
	default:
		fillOther(value, name, schemas)
	}
}

func fillOther(value reflect.Value, name string, schemas int) {
	switch value.Kind() {
	case reflect.String:
		value.SetString("s-" + name + " é")
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int32, reflect.Int64:
		value.SetInt(-302)
	case reflect.Float64:
		value.SetFloat(2.5)
	case reflect.Struct:
		fillStruct(value, schemas)
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fill(value.Elem(), name, schemas)
	case reflect.Slice:
		if value.Type().Elem().Kind() == reflect.Uint8 {
			value.SetBytes([]byte("b-" + name + "\x00\xff"))
			return
		}
		value.Set(reflect.MakeSlice(value.Type(), 2, 2))
		for index := range 2 {
			fill(value.Index(index), fmt.Sprint(name, index), schemas)
		}
	case reflect.Map:
		value.Set(reflect.MakeMap(value.Type()))
		for _, key := range []string{"b", "a"} {
			item := reflect.New(value.Type().Elem()).Elem()
			fill(item, key, schemas)
			value.SetMapIndex(reflect.ValueOf(key).Convert(value.Type().Key()), item)
		}
	default:
		log.Fatalf("nobody knows %v", value.Type())
	}
}

func fillStruct(value reflect.Value, schemas int) {
	for index := range value.NumField() {
		if value.Type().Field(index).Tag.Get("protobuf") != "" {
			fillField(value.Field(index), strings.ToLower(value.Type().Field(index).Name), schemas)
		}
	}
}

func fillField(value reflect.Value, name string, schemas int) {
	fill(value, name, schemas)
}
