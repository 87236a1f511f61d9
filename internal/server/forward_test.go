package server

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/transport"
)

// put writes a key by the REST edge of a node, which another node leads.
func (f *fleet) put(at int, query string) (status int, location, body string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, "PUT", "http://"+f.running[at].HTTPAddress+"/v1/kv/a/keys/k"+query, strings.NewReader(`{"value":"secret"}`))
	if err != nil {
		f.t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+fleetToken)
	q.Header.Set("Content-Type", "application/json")
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(q)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Location"), string(b)
}

// TestAForwardedRequestReachesNoStranger: the directory of members may say what it likes of a node's addresses.
func TestAForwardedRequestReachesNoStranger(t *testing.T) {
	stranger := eavesdrop(t)
	f := startFleet(t, 3, 1, nil)
	lead := f.leader(0)
	follower := (lead + 1) % 3
	leader := f.running[lead]
	if status, _, body := f.put(follower, "?forward=1"); status != http.StatusOK && status != http.StatusCreated {
		t.Fatalf("before: %d %s", status, body)
	}
	// Of the leader's REST edge.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	d, err := leader.Node().ChangeMember(ctx, &core.MemberChange{Do: core.MemberSet, Node: uint64(lead + 1), HTTP: stranger.address})
	if err != nil {
		t.Fatal(err)
	}
	f.until("the follower knows the false address", func() bool { return f.running[follower].Node().Members().Version >= d.Version })
	for _, query := range []string{"?forward=1", "?forward=1&ns=default"} {
		if status, _, body := f.put(follower, query); status != http.StatusOK || strings.Contains(body, `{"rev":"1"}`) {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
	// Of the address for peers, where a node goes.
	if err := f.running[follower].peers.SetPeer(transport.NodeID(lead+1), stranger.address); err != nil {
		t.Fatal(err)
	}
	status, _, body := f.put(follower, "?forward=1")
	if status == http.StatusOK && strings.Contains(body, `{"rev":"1"}`) {
		t.Errorf("a stranger's answer came back: %s", body)
	}
	if status != http.StatusOK && status != http.StatusCreated && !strings.Contains(body, `"outcome":"refused"`) {
		t.Errorf("with the wrong address of the leader: %d %s", status, body)
	}
	if heard, _ := stranger.all(); strings.Contains(heard, fleetToken) || strings.Contains(heard, "secret") || strings.Contains(heard, "HTTP/1.1") {
		t.Errorf("the stranger has heard %q", heard)
	}
}

func TestTheForwarderDialsNothingButNodes(t *testing.T) {
	for _, address := range []string{"", "n3.example:80", "x3.node.millrace:80", "n.node.millrace:80", "n3.node.millrace", "n-3.node.millrace:80", "3.node.millrace.example:80"} {
		if id, err := nodeOfURL(address); err == nil {
			t.Errorf("%q is node %s", address, id)
		}
	}
	if id, err := nodeOfURL(strings.TrimPrefix(nodeURL(3), "http://") + ":" + "80"); err != nil || id != 3 {
		t.Errorf("node 3 is %s, %v", id, err)
	}
}
