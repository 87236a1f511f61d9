package rest_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/server"
)

// A tenant that used up its namespaces removes one, and makes another.
func TestARemovedNamespaceMakesRoomForAnother(t *testing.T) {
	d := openDoorWith(t, server.Options{Shards: 4, Limits: edge.Limits{Namespaces: 2}}, mail)
	existed := func(r reply) string { return string(r.want(t, 200).field(t, "existed")) }
	d.do(mail, "POST", "/v1/namespace?ns=wide", `{"partitions":4}`).want(t, 201)
	d.do(mail, "PUT", "/v1/namespace?ns=wide", `{"auto_create":false}`).want(t, 200)
	id := d.do(mail, "POST", "/v1/tasks?ns=typo", `{"queue":"q","payload":1}`).want(t, 201).text(t, "id")
	d.do(mail, "POST", "/v1/tasks?ns=third", `{"queue":"q"}`).want(t, 429)

	if got := existed(d.do(mail, "DELETE", "/v1/namespace?ns=third", "")); got != "false" {
		t.Errorf("one that is not there: existed %s", got)
	}
	held := d.do(mail, "DELETE", "/v1/namespace?ns=typo", "").want(t, 409)
	if held.text(t, "error", "code") != "WRONG_STATE" || held.text(t, "error", "reason") != "namespace_not_empty" || held.text(t, "error", "details", "held") != "tasks" {
		t.Errorf("with a task: %s", held.body)
	}
	d.do(mail, "GET", "/v1/tasks/"+id+"?ns=typo", "").want(t, 200)
	d.do(mail, "POST", "/v1/tasks?ns=typo", `{"queue":"q","payload":2}`).want(t, 201) // it is open again

	for range 3 { // it comes again, with nothing of what it had
		if got := existed(d.do(mail, "DELETE", "/v1/namespace?ns=wide", "")); got != "true" {
			t.Errorf("an empty one: existed %s", got)
		}
		d.do(mail, "GET", "/v1/namespace?ns=wide", "").want(t, 404)
		d.do(mail, "POST", "/v1/tasks?ns=third", `{"queue":"q"}`).want(t, 201)
		d.do(mail, "DELETE", "/v1/queues/q?ns=third&purge=true", "").want(t, 204)
		if got := existed(d.do(mail, "DELETE", "/v1/namespace?ns=third", "")); got != "true" {
			t.Errorf("one whose queue was removed: existed %s", got)
		}
		made := d.do(mail, "POST", "/v1/namespace?ns=wide", `{"partitions":3}`).want(t, 201)
		if n := strings.Count(string(made.field(t, "partitions")), `"partition":`); n != 3 {
			t.Errorf("made again: %s", made.body)
		}
		again := d.do(mail, "GET", "/v1/namespace?ns=wide", "").want(t, 200)
		if string(again.field(t, "auto_create")) != "true" || again.text(t, "version") != "0" {
			t.Errorf("made again: %s", again.body)
		}
	}
}

// What a user would miss keeps a namespace: each kind of it, also in a partition that is not the first.
func TestANamespaceIsKeptByEachKindOfContent(t *testing.T) {
	d := openDoorOf(t, 2, mail)
	for i, c := range []struct{ held, method, path, body, undo string }{
		{"tasks", "POST", "/v1/tasks", `{"queue":"q","delay":"1h"}`, "/v1/queues/q?purge=true&"},
		{"keys", "PUT", "/v1/kv/s/keys/a", `{"value":"MQ=="}`, "/v1/kv/s/keys/a?"},
		{"keys", "PUT", "/v1/kv/s/keys/b", `{"value":"MQ=="}`, "/v1/keyspaces/s?"},
		{"collections", "PUT", "/v1/collections/ws", `{"schema":[{"name":"role","type":"keyword"}]}`, "/v1/collections/ws?"},
		{"rulesets", "PUT", "/v1/rulesets/r", `{"collection":"ws","rules":[{"id":"a","when":"true","severity":"bonus","weight":0.5}]}`, ""},
		{"repositories", "POST", "/v1/repos", `{"name":"r"}`, "/v1/repos/r?"}, // which can be brought back
	} {
		ns := fmt.Sprint("ns=n", i)
		d.do(mail, "POST", "/v1/namespace?"+ns, `{"partitions":3}`).want(t, 201)
		d.do(mail, "PUT", "/v1/queues/set?"+ns, `{"max_attempts":3}`).want(t, 201) // goes with it
		if c.held == "rulesets" {
			d.do(mail, "PUT", "/v1/collections/ws?"+ns, `{"schema":[{"name":"role","type":"keyword"}]}`).want(t, 201)
		}
		if made := d.do(mail, c.method, c.path+"?"+ns, c.body); made.status >= 300 {
			t.Errorf("%s %s: %d %s", c.method, c.path, made.status, made.body)
			continue
		}
		if c.held == "rulesets" {
			d.do(mail, "DELETE", "/v1/collections/ws?"+ns, "")
		}
		kept := func() {
			refused := d.do(mail, "DELETE", "/v1/namespace?"+ns, "").want(t, 409)
			if got := refused.text(t, "error", "details", "held"); got != c.held {
				t.Errorf("%s: held by %s", c.held, got)
			}
		}
		kept()
		if c.undo == "" {
			continue
		}
		if r := d.do(mail, "DELETE", c.undo+ns, ""); r.status >= 300 {
			t.Errorf("DELETE %s: %d %s", c.undo, r.status, r.body)
		}
		if c.held == "repositories" {
			kept()
			continue
		}
		d.do(mail, "DELETE", "/v1/namespace?"+ns, "").want(t, 200)
		d.do(mail, "GET", "/v1/queues/set?"+ns, "").want(t, 404)
	}
}

// A worker's stream, and a claim that waits, end when their namespace is removed; the next stream of a producer makes another.
func TestStreamsEndWithTheirNamespace(t *testing.T) {
	d := openDoorOf(t, 2, mail)
	conn, err := grpc.NewClient(d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // the test has all that it wants
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+mail, "millrace-namespace", "n")
	stream, err := pb.NewQueueStreamClient(conn).Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(f *pb.ClientFrame) {
		t.Helper()
		if err := stream.Send(f); err != nil {
			t.Fatal(err)
		}
	}
	session := make([]byte, 16)
	session[0] = 1
	send(&pb.ClientFrame{Frame: &pb.ClientFrame_Hello{Hello: &pb.Hello{Version: 1, Session: session}}})
	if f, err := stream.Recv(); err != nil || f.GetWelcome() == nil {
		t.Fatal(f, err)
	}
	send(&pb.ClientFrame{Frame: &pb.ClientFrame_Subscribe{Subscribe: &pb.Subscribe{Sub: 1, Queues: []*pb.QueueWeight{{Name: "q"}}, Slots: 4}}})
	claimed := make(chan reply, 1)
	go func() { claimed <- d.do(mail, "POST", "/v1/tasks:claim?ns=n", `{"queues":["q"],"wait":"20s"}`) }()
	d.do(mail, "DELETE", "/v1/namespace?ns=n", "").want(t, 200)
	for {
		if _, err := stream.Recv(); err != nil {
			if status.Code(err) != codes.NotFound {
				t.Errorf("the stream ended with %v", err)
			}
			break
		}
	}
	d.do(mail, "POST", "/v1/tasks?ns=n", `{"queue":"q","payload":1}`).want(t, 201)
	if r := <-claimed; r.status != 200 && r.status != 404 { // it goes on with the next namespace of that name, or ends with its own
		t.Errorf("the claim ended with %d %s", r.status, r.body)
	}
}
