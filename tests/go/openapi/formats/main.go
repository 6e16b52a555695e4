// What the string formats of Kubernetes' schemas accept: reads a JSON list of texts, and prints it with the texts
// that each format accepts. `go run ./formats < texts.json > ../../kube/apiserver/data/formats.json`
package main

import (
	"encoding/json"
	"log"
	"os"

	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

var names = []string{
	"bsonobjectid", "byte", "cidr", "creditcard", "date", "date-time", "duration", "email", "hexcolor", "hostname",
	"ipv4", "ipv6", "isbn", "isbn10", "isbn13", "k8s-long-name", "k8s-short-name", "mac", "password", "rgbcolor",
	"ssn", "uri", "uuid", "uuid3", "uuid4", "uuid5",
}

func main() {
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		log.Fatal(err)
	}
	accepted := map[string][]int{}
	for _, name := range names {
		accepted[name] = []int{}
		for index, text := range texts {
			if strfmt.Default.Validates(name, text) {
				accepted[name] = append(accepted[name], index)
			}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"texts": texts, "accepted": accepted}); err != nil {
		log.Fatal(err)
	}
}
