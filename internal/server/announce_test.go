package server

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/transport"
)

// settled waits until all nodes that run have announced their addresses and registered their data directories, and know those of
// all: from then on no node changes the directory by itself.
func (f *fleet) settled() {
	f.t.Helper()
	f.until("every node's addresses are those that it announces", func() bool {
		for at := range f.running {
			for _, r := range f.running {
				if f.running[at] == nil || r == nil {
					continue
				}
				if m := f.member(at, r.o.Cluster.Node); !r.addresses().is(&m) || m.Store == (core.StoreID{}) {
					return false
				}
			}
		}
		return true
	})
}

func TestTheDirectoryHasTheAddressesThatNodesAnnounce(t *testing.T) {
	var moved atomic.Bool
	f := startFleet(t, 3, 1, func(i int, o *Options) {
		o.Cluster.Peers = slices.Clone(o.Cluster.Peers)
		for k := range o.Cluster.Peers {
			if k != i { // what a node's settings say of others is not what the directory is to say
				o.Cluster.Peers[k].API, o.Cluster.Peers[k].HTTP = "stale.example:7081", "stale.example:7080"
			}
		}
		switch {
		case i == 2 && moved.Load():
			o.HTTP = off
		case i == 2:
			o.Cluster.AdvertiseGRPC, o.Cluster.AdvertiseHTTP = "n3.example:7081", "n3.example:7080"
		}
	})
	f.settled()
	if m := f.member(0, 3); m.Peer != f.peers[2].Address || m.API != "n3.example:7081" || m.HTTP != "n3.example:7080" {
		t.Errorf("node 3 is %+v", m)
	}
	if m := f.member(2, 1); m.API != f.peers[0].API || m.HTTP != f.peers[0].HTTP {
		t.Errorf("node 1 is %+v", m)
	}
	f.stop(2)
	moved.Store(true)
	f.start(2) // with other settings: no REST edge, and the addresses that it listens on
	f.settled()
	if m := f.member(0, 3); m.API != f.peers[2].API || hasREST(m.HTTP) || f.running[0].webOf(m.API) != "" {
		t.Errorf("node 3 is %+v, and clients are sent to %q", m, f.running[0].webOf(m.API))
	}
}

// ask says to a node what another one would, under the certificate of that other one.
func (f *fleet) ask(from, to int, kind string, question, answer any) error {
	ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Second)
	defer cancel()
	s, err := f.running[from].peers.OpenStream(ctx, transport.NodeID(to+1), kind)
	if err != nil {
		return err
	}
	return exchange(ctx, s, question, answer)
}

// TestOneNodeCannotSayWhereAnotherIs: the certificate of a node is good for its own addresses, whatever it asks for.
func TestOneNodeCannotSayWhereAnotherIs(t *testing.T) {
	f := startFleet(t, 3, 1, nil)
	f.settled()
	lead := f.leader(0)
	liar, victim := (lead+1)%3, (lead+2)%3
	before := f.member(lead, uint64(victim+1))
	node := uint64(victim + 1)
	const evil = "stranger.example:1"
	entry := func(op *core.MemberChange) []byte {
		return core.AppendEntry(nil, &core.Entry{Format: core.NewestFormat(), Commits: []core.Commit{{Ops: []core.Op{op}}}})
	}
	for name, op := range map[string]*core.MemberChange{
		"set peer":   {Do: core.MemberSet, Node: node, Peer: evil},
		"set gRPC":   {Do: core.MemberSet, Node: node, API: evil},
		"set REST":   {Do: core.MemberSet, Node: node, HTTP: evil},
		"set name":   {Do: core.MemberSet, Node: node, Name: "other"},
		"register":   {Do: core.MemberRegister, Node: node, Store: core.StoreID{9}},
		"join":       {Do: core.MemberJoin, Node: node, Store: core.StoreID{9}, Peer: evil, API: evil, HTTP: evil},
		"no node":    {Do: core.MemberSet, Peer: evil},
		"its leader": {Do: core.MemberSet, Node: uint64(lead + 1), HTTP: evil},
	} {
		var a told
		if err := f.ask(liar, lead, askKind, query{Do: "change", Change: entry(op)}, &a); err != nil || a.Error == "" {
			t.Errorf("%s, asked of the leader's node: %+v, %v", name, a, err)
		}
		// As a proposal that the leader is given.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if op.Do != core.MemberJoin {
			if _, err := f.running[liar].Node().ChangeMember(ctx, op); err == nil {
				t.Errorf("%s: proposed", name)
			}
		}
		cancel()
	}
	// An announcement is of the node that makes it, whatever else it says.
	var a announced
	lie := map[string]any{"node": node, "Node": node, "peer": f.peers[liar].Address, "grpc": "liar.example:2", "http": "liar.example:3"}
	if err := f.ask(liar, lead, announceKind, lie, &a); err != nil || !a.Done {
		t.Errorf("an announcement: %+v, %v", a, err)
	}
	now := f.member(lead, node)
	if now.Store == (core.StoreID{9}) {
		t.Error("another node has registered a data directory for it")
	}
	if now.Store = before.Store; now != before { // it may have registered its own meanwhile
		t.Errorf("the other node is %+v, was %+v", now, before)
	}
	f.settled() // the node itself says where it is, again
}

// TestAnOperatorCannotSayWhereANodeIs: not with a token that may change the cluster, by any door that it opens.
func TestAnOperatorCannotSayWhereANodeIs(t *testing.T) {
	f := startFleet(t, 2, 1, nil)
	f.settled()
	lead := f.leader(0)
	before := f.running[lead].Node().Members()
	for _, body := range []string{
		`{"verb":"set","node":1,"http":"stranger.example:1"}`, `{"verb":"set","node":2,"grpc":"stranger.example:1"}`,
		`{"verb":"set","node":1,"peer":"stranger.example:1"}`, `{"verb":"set","node":1,"name":"other"}`,
		`{"verb":"add","node":1,"peer":"stranger.example:1","grpc":"stranger.example:2","http":"stranger.example:3"}`,
		`{"verb":"undrain","node":1,"peer":"stranger.example:1","grpc":"stranger.example:2","http":"stranger.example:3"}`,
		`{"verb":"promote","node":2,"http":"stranger.example:3"}`,
	} {
		for at := range f.running {
			_ = ask(t, "POST", "http://"+f.running[at].HTTPAddress+"/v1/cluster/members", func(q *http.Request) {
				q.Header.Set("Authorization", "Bearer "+fleetToken)
				q.Header.Set("Content-Type", "application/json")
				q.Body, q.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
			})
		}
	}
	for i, m := range f.running[lead].Node().Members().Members {
		if was := before.Members[i]; m.Peer != was.Peer || m.API != was.API || m.HTTP != was.HTTP || m.Name != was.Name {
			t.Errorf("node %d is %+v, was %+v", m.Node, m, was)
		}
	}
	// A node that is added has no address until it comes itself.
	got := ask(t, "POST", "http://"+f.running[0].HTTPAddress+"/v1/cluster/members", func(q *http.Request) {
		q.Header.Set("Authorization", "Bearer "+fleetToken)
		q.Header.Set("Content-Type", "application/json")
		body := `{"verb":"add","node":3,"peer":"stranger.example:1","grpc":"stranger.example:2","http":"stranger.example:3"}`
		q.Body, q.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	})
	if got.code != http.StatusOK || strings.Contains(got.body, "stranger") {
		t.Errorf("%d %s", got.code, got.body)
	}
	if m := f.member(0, 3); known(m.Peer) != "" || m.API != "" || m.HTTP != "" {
		t.Errorf("node 3 is %+v", m)
	}
}

func TestAnAnnouncementThatMakesNoSenseIsRefused(t *testing.T) {
	good := announcement{Peer: "10.0.0.1:7082", GRPC: "[2001:db8::1]:7081", HTTP: "n1.example:7080"}
	for _, a := range []announcement{good, {good.Peer, good.GRPC, "off"}, {good.Peer, good.GRPC, ""}} {
		if err := a.check(); err != nil {
			t.Errorf("%+v: %v", a, err)
		}
	}
	long := strings.Repeat("a", 260) + ":" + "1"
	for _, bad := range []string{"", "h", ":" + "7082", "0.0.0.0:" + "1", "[::]:" + "1", "h:0", "h:65536", "h:x", "h/x:1", "u@h:1", "h?x:1", "h h:1", "h\n:1", "h#:1", long} {
		for i, name := range []string{"peer", "grpc", "http"} {
			a := good
			*[]*string{&a.Peer, &a.GRPC, &a.HTTP}[i] = bad
			if bad == "" && name == "http" {
				continue
			}
			if err := a.check(); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s %q: %v", name, bad, err)
			}
		}
	}
	if text, err := json.Marshal(good); err != nil || len(text) > announceBytes {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
