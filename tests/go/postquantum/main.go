// Judges certificates with ML-DSA keys by Go's crypto/x509 and crypto/tls: postquantum FOLDER. The folder has
// tls.crt, tls.key and ca.crt, as in a Secret. Prints one line for each check, and ends with 1 at the first that
// fails. ML-DSA is in Go's standard library since 1.27.
package main

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"
)

const serverName = "web.example.com"

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: postquantum FOLDER")
	}
	log.SetFlags(0)
	if err := judge(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func judge(folder string) error {
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
	if err != nil {
		return err
	}
	fmt.Println("the private key belongs to the certificate")
	leaf := pair.Leaf
	fmt.Printf("public key %v, signature %v, key usage %d\n", leaf.PublicKeyAlgorithm, leaf.SignatureAlgorithm, leaf.KeyUsage)
	roots, err := pool(filepath.Join(folder, "ca.crt"))
	if err != nil {
		return err
	}
	above := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		one, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		above.AddCert(one)
	}
	now := leaf.NotBefore.Add(time.Minute)
	if _, err := leaf.Verify(x509.VerifyOptions{
		DNSName: serverName, Roots: roots, Intermediates: above, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}); err != nil {
		return err
	}
	fmt.Println("the chain leads to ca.crt")
	if err := handshake(pair, roots, now); err != nil {
		return err
	}
	fmt.Println("a TLS 1.3 handshake succeeds")
	if path := filepath.Join(folder, "request.pem"); exists(path) {
		return request(path, pair.PrivateKey)
	}
	return nil
}

// pool reads the CAs of a PEM file.
func pool(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	found := x509.NewCertPool()
	if !found.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", path)
	}
	return found, nil
}

// handshake connects a client to a server that has the certificate.
func handshake(pair tls.Certificate, roots *x509.CertPool, now time.Time) error {
	near, far := net.Pipe()
	clock := func() time.Time { return now }
	server := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{pair}, Time: clock})
	client := tls.Client(near, &tls.Config{
		RootCAs: roots, ServerName: serverName, Time: clock, MinVersion: tls.VersionTLS13,
	})
	ended := make(chan error, 1)
	go func() { ended <- server.Handshake() }()
	if err := client.Handshake(); err != nil {
		return err
	}
	return <-ended
}

// request checks the signature of a signing request, and that it has the certificate's key.
func request(path string, key crypto.PrivateKey) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return fmt.Errorf("%s is not PEM", path)
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	if err := csr.CheckSignature(); err != nil {
		return err
	}
	public := key.(crypto.Signer).Public().(interface{ Equal(crypto.PublicKey) bool })
	if !public.Equal(csr.PublicKey) {
		return fmt.Errorf("the signing request has another key")
	}
	fmt.Println("the signing request has that key and a valid signature")
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
