package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// sdkDoor is the Go client of this project, as a program has it that starts with the addresses of
// all nodes: one client for each node that it begins with.
type sdkDoor struct {
	rig *bench.Rig
	// job names the queue and the lease of the tasks.
	job *millrace.JobOf[[]byte, []byte]
	// clients are the connections, by the server that each begins with.
	clients []*millrace.Client
}

// newSDKDoor connects the clients, or closes those that were connected before one failed.
func newSDKDoor(ctx context.Context, rig *bench.Rig) (*sdkDoor, error) {
	d := &sdkDoor{rig: rig, job: millrace.Job[[]byte, []byte](rig.Queue).Queue(rig.Queue)}
	if rig.Shape.Lease > 0 {
		d.job = d.job.Lease(rig.Shape.Lease)
	}
	for i := range rig.Servers {
		c, err := rig.Dial(ctx, i)
		if err != nil {
			d.close()
			return nil, fmt.Errorf("connect to %s: %w", rig.Servers[i].Name, err)
		}
		d.clients = append(d.clients, c)
	}
	return d, nil
}

// close ends the clients, whose calls all have their answers.
func (d *sdkDoor) close() {
	for _, c := range d.clients {
		_ = c.Close()
	}
}

// of is the client of a caller.
func (d *sdkDoor) of(caller int) *millrace.Client { return d.clients[caller%len(d.clients)] }

// create sends one task through the stream of the caller's client.
func (d *sdkDoor) create(ctx context.Context, caller int) (string, error) {
	h, err := d.job.Add(ctx, d.of(caller), d.rig.Payload)
	if err != nil {
		return "", err
	}
	return h.ID, nil
}

// claim waits up to restWait for a task.
func (d *sdkDoor) claim(ctx context.Context, caller int) (string, uint64, error) {
	got, err := d.of(caller).Claim(ctx, millrace.ClaimQuery{
		Queues: []string{d.rig.Queue}, Lease: d.rig.Shape.Lease, Wait: restWait, Worker: "bench",
	})
	if err != nil || len(got) == 0 {
		return "", 0, err
	}
	return got[0].ID, got[0].Token, nil
}

// complete ends the task. The client does not tell whether an earlier try had ended it.
func (d *sdkDoor) complete(ctx context.Context, caller int, id string, token uint64) (bool, error) {
	_, err := d.of(caller).Complete(ctx, id, token, d.rig.Result)
	return false, err
}

// traffic counts what the servers were asked: the calls that they ended, by their own metrics, and
// the frames of the clients' streams.
func (d *sdkDoor) traffic(ctx context.Context) (t traffic, known bool, err error) {
	for _, s := range d.rig.Servers {
		if s.Admin == "" {
			d.rig.Warn("requests_unknown", "what "+s.Name+" was asked cannot be read: its admin listener is not known", 0)
			return t, false, nil
		}
		err := adminPage(s.Admin).get(ctx, "/metrics", func(body io.Reader) error {
			calls, elsewhere, err := taskCalls(body)
			t.sent, t.redirected = t.sent+calls, t.redirected+elsewhere
			return err
		})
		if err != nil {
			return t, false, err
		}
	}
	// A frame carries several operations, and counts once.
	for _, c := range d.clients {
		t.sent += c.Frames()
	}
	return t, true, nil
}

// taskCalls reads from a server's metrics how many calls for tasks it ended, and how many of them
// it sent to the leader. A stream is one call, whose frames are counted apart; the harness asks for
// tasks only when all is done.
func taskCalls(metrics io.Reader) (calls, elsewhere uint64, err error) {
	const name = "millrace_api_ended_calls_total{"
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		labels, ok := strings.CutPrefix(lines.Text(), name)
		// Other services are not asked by the callers.
		if !ok || !strings.Contains(labels, ".TaskService/") && !strings.Contains(labels, ".QueueStream/") {
			continue
		}
		_, value, _ := strings.Cut(labels, "} ")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, 0, err
		}
		calls += uint64(v)
		if strings.Contains(labels, `code="NOT_LEADER"`) {
			elsewhere += uint64(v)
		}
	}
	return calls, elsewhere, lines.Err()
}
