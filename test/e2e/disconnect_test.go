package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/test/chaos/proc"
)

// TestATaskOfAWorkerWhoseStreamBrokeIsGivenOutSoon: although its lease is for a minute. Unless somebody renews the lease: then the
// worker lives, only its stream does not.
func TestATaskOfAWorkerWhoseStreamBrokeIsGivenOutSoon(t *testing.T) {
	t.Parallel()
	const grace = time.Second
	l := startLocal(t, holder{tenant: "acme", role: "admin"})
	l.stop()
	l.grace = grace
	l.start()
	proxy, err := proc.NewProxy(l.running.Address)
	noErr(t, err)
	t.Cleanup(func() { noErr(t, proxy.Close()) })
	r := l.raw(0)
	var ids []string
	for range 2 {
		out := must(t, r, "TaskService/Create", &millracev1.CreateRequest{Task: &millracev1.TaskSpec{Queue: "q", Lease: durationpb.New(time.Minute)}}, &millracev1.CreateResponse{})
		ids = append(ids, out.GetId())
	}
	s := newRaw(t, proxy.Address(), l.tokens[0]).openStream(t)
	s.hello(1)
	s.send(&millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Subscribe{Subscribe: &millracev1.Subscribe{
		Sub: 1, Slots: 2, Queues: []*millracev1.QueueWeight{{Name: "q", Weight: 1}},
	}}})
	token := map[string]uint64{}
	for len(token) < len(ids) {
		f, a := s.next()
		if f == nil {
			t.Fatalf("stream ended: %v", a)
		}
		for _, task := range f.GetAssign().GetTasks() {
			token[task.GetId()] = task.GetToken()
		}
	}

	proxy.Set(proc.Rule{Refuse: true})
	proxy.Reset()
	cut := time.Now()
	beat := func() {
		body := fmt.Sprintf(`{"items":[{"id":%q,"token":"%d"}]}`, ids[1], token[ids[1]])
		req, err := http.NewRequestWithContext(bounded(t, 30*time.Second), http.MethodPost, "http://"+l.running.HTTPAddress+"/v1/tasks:heartbeat", strings.NewReader(body))
		noErr(t, err)
		req.Header.Set("Authorization", "Bearer "+l.tokens[0])
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		noErr(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("heartbeat: %s", resp.Status)
		}
	}
	beat()
	claim := func(wait time.Duration) []*millracev1.Assignment {
		return must(t, r, "TaskService/Claim", &millracev1.ClaimRequest{
			Queues: []*millracev1.QueueWeight{{Name: "q", Weight: 1}}, Max: 2, Wait: durationpb.New(wait), Worker: "other",
		}, &millracev1.ClaimResponse{}).GetTasks()
	}
	got := claim(10 * time.Second)
	took := time.Since(cut)
	if len(got) != 1 || got[0].GetId() != ids[0] || took < grace-100*time.Millisecond {
		t.Errorf("given out after %v: %v", took, got)
	}
	if again := claim(2 * grace); len(again) > 0 {
		t.Errorf("a lease that was renewed ended: %v", again)
	}
	task := must(t, r, "TaskService/Get", &millracev1.GetRequest{Id: ids[1]}, &millracev1.GetResponse{}).GetTask()
	if task.GetState() != millracev1.State_RUNNING || task.GetCrashes() != 0 {
		t.Errorf("the task whose lease was renewed: %v", task)
	}
}
