// One etcd member on loopback without TLS, for tests: etcd DIR CLIENT_PORT PEER_PORT. It ends when its
// standard input does, so that it never outlives the test run that started it.
package main

import (
	"io"
	"log"
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
)

func loopback(port string) []url.URL {
	return []url.URL{{Scheme: "http", Host: "127.0.0.1:" + port}}
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: etcd DIR CLIENT_PORT PEER_PORT")
	}
	config := embed.NewConfig()
	config.Dir, config.LogLevel = os.Args[1], "error"
	config.UnsafeNoFsync = true // the data lives as long as the test
	config.ListenClientUrls, config.AdvertiseClientUrls = loopback(os.Args[2]), loopback(os.Args[2])
	config.ListenPeerUrls, config.AdvertisePeerUrls = loopback(os.Args[3]), loopback(os.Args[3])
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	member, err := embed.StartEtcd(config)
	if err != nil {
		log.Fatal(err)
	}
	<-member.Server.ReadyNotify()
	io.Copy(io.Discard, os.Stdin)
	member.Close()
}
