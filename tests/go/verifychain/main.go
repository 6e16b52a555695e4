// Verifies chains as Go's clients do: each line of the input is {"chain": PEM, "roots": PEM, "time": seconds};
// each line of the output is "ok" or the error.
package main

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
	"time"
)

type question struct {
	Chain string `json:"chain"`
	Roots string `json:"roots"`
	Time  int64  `json:"time"`
}

func verify(asked question) error {
	options := x509.VerifyOptions{
		Roots:         x509.NewCertPool(),
		Intermediates: x509.NewCertPool(),
		CurrentTime:   time.Unix(asked.Time, 0),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	options.Roots.AppendCertsFromPEM([]byte(asked.Roots))
	block, rest := pem.Decode([]byte(asked.Chain))
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	options.Intermediates.AppendCertsFromPEM(rest)
	_, err = leaf.Verify(options)
	return err
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		if err := verify(asked); err != nil {
			fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("ok")
		}
	}
}
