// httpserver answers with every status, body form and connection state that net/http can produce, for
// tests/kube/client/test_http1.py. It prints its port, and ends with its standard input.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

var content = bytes.Repeat([]byte("0123456789abcdef"), 4096)

func body(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Query().Get("form") {
	case "length":
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	case "close-delimited":
		w.Header().Set("Transfer-Encoding", "identity")
	case "chunked":
		w.(http.Flusher).Flush()
	case "trailers":
		w.Header().Set("Trailer", "X-Checksum")
		defer w.Header().Set("X-Checksum", "1")
	case "gzip":
		w.Header().Set("Content-Encoding", "gzip")
		zip := gzip.NewWriter(w)
		defer zip.Close()
		zip.Write(content)
		return
	case "none":
		return
	case "big":
		for range 256 {
			w.Write(content)
		}
		return
	}
	w.Write(content)
}

func status(w http.ResponseWriter, r *http.Request) {
	code, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/status/"))
	w.Header().Set("X-Method", r.Method)
	if code < 200 {
		w.Header().Set("Link", "</x>")
		w.WriteHeader(code)
		w.Header().Del("Link")
		code = http.StatusOK
	}
	received, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Received", strconv.Itoa(len(received)))
	w.WriteHeader(code)
	if code != http.StatusNoContent && code != http.StatusNotModified {
		io.WriteString(w, "{}")
	}
}

// raw answers without net/http's own framing: the connection's end is the test's subject.
func raw(w http.ResponseWriter, r *http.Request) {
	connection, _, _ := w.(http.Hijacker).Hijack()
	tcp := connection.(*net.TCPConn)
	answer := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
	switch r.URL.Path {
	case "/raw/closed-while-idle":
		io.WriteString(tcp, answer)
	case "/raw/half-closed":
		io.WriteString(tcp, answer)
		tcp.CloseWrite()
		io.Copy(io.Discard, tcp)
	case "/raw/garbage-after":
		io.WriteString(tcp, answer+answer)
		io.Copy(io.Discard, tcp)
	case "/raw/reset":
		tcp.SetLinger(0)
	case "/raw/reset-within":
		io.WriteString(tcp, answer[:len(answer)-1])
		time.Sleep(100 * time.Millisecond)
		tcp.SetLinger(0)
	case "/raw/reset-within-close-delimited":
		io.WriteString(tcp, "HTTP/1.1 200 OK\r\n\r\n{")
		time.Sleep(100 * time.Millisecond)
		tcp.SetLinger(0)
	}
	tcp.Close()
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/body", body)
	http.HandleFunc("/status/", status)
	http.HandleFunc("/raw/", raw)
	http.HandleFunc("/peer", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) })
	go http.Serve(listener, nil)
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	io.Copy(io.Discard, os.Stdin)
}
