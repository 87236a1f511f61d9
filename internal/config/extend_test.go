package config

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestOneMoreNodeIsOfTheSameAuthority(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	made, err := Development{Dir: "/c", Nodes: 1, Host: "127.0.0.1", BasePort: 7400, Shards: 2, Tokens: []byte("t"), Now: now}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	content := func(files []File, name string) []byte {
		for _, f := range files {
			if f.Name == name {
				return f.Content
			}
		}
		t.Fatalf("no file %s", name)
		return nil
	}
	o := OneMore{
		Dir: "/c", Node: 4, Host: "127.0.0.1", BasePort: 7430, Shards: 2, Tokens: []byte("t"), Now: now,
		Authority: content(made.Files, "ca.pem"), Key: content(made.Files, "ca.key"),
	}
	more, err := o.Plan()
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(o.Authority)
	block, _ := pem.Decode(content(more.Files, "n4/node.pem"))
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if want := fmt.Sprintf("millrace://%s/node/4", made.Cluster); cert.URIs[0].String() != want {
		t.Errorf("it names %s, want %s", cert.URIs[0], want)
	}
	text := string(content(more.Files, "n4/millrace.yaml"))
	if strings.Contains(text, "peers:") || !strings.Contains(text, made.Cluster) || !strings.Contains(text, `peer_listen: "127.0.0.1:7430"`) {
		t.Errorf("configuration:\n%s", text)
	}
	for name, change := range map[string]func(*OneMore){
		"no node":       func(o *OneMore) { o.Node = 0 },
		"no authority":  func(o *OneMore) { o.Authority = nil },
		"another's key": func(o *OneMore) { o.Key = content(more.Files, "n4/node.key") },
		"no authority's certificate": func(o *OneMore) {
			o.Authority, o.Key = content(more.Files, "n4/node.pem"), content(more.Files, "n4/node.key")
		},
	} {
		bad := o
		change(&bad)
		if _, err := bad.Plan(); err == nil {
			t.Errorf("%s: a node was made", name)
		}
	}
}
