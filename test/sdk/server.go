package sdk

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// server is a server or a cluster of a scenario, with a client of the runner's own.
type server struct {
	// single is the server, and front the proxy before it, which keeps its address over restarts; both nil for a cluster.
	single *proc.Server
	front  *proc.Proxy
	// cluster is nil for a server of its own.
	cluster *proc.Cluster
	client  *millrace.Client
	// paused is the node that was paused; nil: none is.
	paused *proc.Node
	// token is one that it takes, and namespace the one that agents use.
	token, namespace string
	partitions       int
}

// wide is the namespace of scenarios with several partitions: the one that every server has is made with one.
const wide = "wide"

// startServer starts a server or a cluster. It may return both: what was started is to be closed.
func startServer(ctx context.Context, program, dir string, spec ServerSpec) (*server, error) {
	s := &server{namespace: "default", partitions: max(spec.Partitions, 1)}
	opts := []millrace.Option{millrace.Insecure(), millrace.Logger(slog.New(slog.DiscardHandler))}
	if spec.Partitions > 1 {
		s.namespace = wide
		opts = append(opts, millrace.Namespace(wide))
	}
	var err error
	if spec.Nodes > 0 {
		o := proc.ClusterOptions{Binary: program, Dir: dir, Flags: spec.Flags, Nodes: spec.Nodes, Shards: s.partitions}
		if s.cluster, err = proc.NewCluster(ctx, o, "default"); err != nil {
			return nil, err
		}
		if err := s.cluster.Start(ctx); err != nil {
			return s, err
		}
		s.token = s.cluster.Tokens[0].Secret
		opts = append(opts, millrace.Address(s.cluster.Addresses(0)))
	} else {
		flags := spec.Flags
		if s.partitions > 1 {
			flags = append([]string{"--shards", fmt.Sprint(s.partitions)}, flags...)
		}
		if s.single, err = proc.New(ctx, proc.Options{Binary: program, Dir: dir, Flags: flags}, "default"); err != nil {
			return nil, err
		}
		if _, err := s.single.Start(ctx); err != nil {
			return s, err
		}
		if s.front, err = proc.NewProxy(s.single.Address()); err != nil {
			return s, err
		}
		s.token = s.single.Tokens[0].Secret
		opts = append(opts, millrace.Address("server.test:1"), millrace.Dialer(s.single.Dial))
	}
	if s.client, err = millrace.Dial(ctx, append(opts, millrace.Token(s.token))...); err != nil {
		return s, err
	}
	if s.partitions > 1 {
		_, err = s.client.CreateNamespace(ctx, s.partitions)
	}
	return s, err
}

// address is where agents dial it: all nodes of a cluster, with commas between them.
func (s *server) address() string {
	if s.cluster != nil {
		return s.cluster.Addresses(0)
	}
	return s.front.Address()
}

// http is where it speaks REST; empty: it does not.
func (s *server) http() string {
	if s.cluster != nil {
		return ""
	}
	return s.single.HTTP()
}

// close ends all of it.
func (s *server) close() (err error) {
	if s.client != nil {
		err = s.client.Close()
	}
	if s.front != nil {
		err = errors.Join(err, s.front.Close())
	}
	if s.single != nil {
		s.single.Kill()
	}
	if s.cluster != nil {
		err = errors.Join(err, s.cluster.Close())
	}
	return err
}

// do does what a word says of a server or a cluster.
func (s *server) do(ctx context.Context, word string, value any) (any, error) {
	switch word {
	case "kv_get":
		names, ok := value.([]any)
		if !ok || len(names) != 2 {
			return nil, errors.New("kv_get must name a keyspace and a key")
		}
		v, err := s.client.KV(fmt.Sprint(names[0])).Get(ctx, fmt.Sprint(names[1]))
		if errors.Is(err, millrace.ErrNotFound) {
			return nil, nil
		}
		return v.String(), err
	case "writers":
		_, err := s.client.KV(fmt.Sprint(value)).Configure(ctx, millrace.KeyspaceConfig{Writers: true})
		return nil, err
	case "task":
		t, err := s.client.Task(ctx, fmt.Sprint(value))
		if err != nil {
			return nil, err
		}
		return map[string]any{
			"state": t.State.String(), "reason": t.Reason, "attempt": t.Attempt, "failures": t.Failures, "crashes": t.Crashes, "snoozes": t.Snoozes,
			"task_code": t.ErrorCode, "message": t.ErrorMessage, "stack": t.ErrorStack, "payload_base64": base64.StdEncoding.EncodeToString(t.Payload),
			"content_type": t.ContentType, "result_base64": base64.StdEncoding.EncodeToString(t.Result), "result_type": t.ResultType,
			"tag": t.Tag, "key": t.Key, "cost": t.Cost, "priority": t.Priority, "labels": t.Labels, "headers": t.Headers,
			"pending": t.Pending, "dependents": t.Dependents, "on_dep_failure": t.OnDepFailure.String(), "limiters": t.Limiters, "batch": t.Batch,
		}, nil
	case "count":
		q, err := s.client.Queue(fmt.Sprint(value)).Stats(ctx)
		if err != nil {
			return nil, err
		}
		return map[string]any{"ready": q.Ready, "running": q.Running, "scheduled": q.Scheduled, "completed": q.Completed, "dead": q.Dead}, nil
	}
	if s.cluster != nil {
		return nil, s.byCluster(ctx, word)
	}
	if word == "token" {
		ms, err := number(value)
		if err != nil {
			return nil, err
		}
		t, err := s.single.AddToken(ctx, time.Duration(ms)*time.Millisecond)
		if err != nil {
			return nil, err
		}
		return t.Secret, s.accepts(ctx, t.Secret)
	}
	return nil, s.bySingle(ctx, word)
}

// accepts waits until a token is good.
func (s *server) accepts(ctx context.Context, secret string) error {
	c, err := millrace.Dial(ctx, millrace.Insecure(), millrace.Logger(slog.New(slog.DiscardHandler)), millrace.Address("server.test:1"),
		millrace.Dialer(s.single.Dial), millrace.Token(secret))
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // it only reads
	for {
		_, err := c.Queue("none").Stats(ctx)
		if e, ok := errors.AsType[*millrace.Error](err); !ok || e.Code != millrace.CodeUnauthenticated {
			return nil
		}
		if err := proc.Rest(ctx, 10*time.Millisecond); err != nil {
			return errors.New("the token is not accepted")
		}
	}
}

// bySingle does what a word says of the process of a server.
func (s *server) bySingle(ctx context.Context, word string) error {
	switch word {
	case "kill":
		s.single.Kill()
	case "restart":
		if s.single.Up() {
			s.single.Kill()
		}
		if _, err := s.single.Start(ctx); err != nil {
			return err
		}
		s.front.Retarget(s.single.Address())
	case "pause":
		return s.single.Pause()
	case "resume":
		return s.single.Resume()
	default:
		return fmt.Errorf("a server does not know the word %s", word)
	}
	return nil
}

// byCluster does what a word says of the nodes of a cluster.
func (s *server) byCluster(ctx context.Context, word string) error {
	switch word {
	case "kill_leader":
		n, err := s.leader(ctx)
		if err != nil {
			return err
		}
		n.Kill()
	case "pause_leader":
		n, err := s.leader(ctx)
		if err != nil {
			return err
		}
		s.paused = n
		return n.Pause()
	case "revive":
		return s.revive(ctx)
	case "roll": // each node ends as an operator ends it, and begins again, one after the other
		for _, n := range s.cluster.Nodes {
			if err := n.Stop(); err != nil {
				return err
			}
			if _, err := n.Start(ctx); err != nil {
				return err
			}
			if err := s.led(ctx); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("a cluster does not know the word %s", word)
	}
	return nil
}

// leader is the node that leads partition 0.
func (s *server) leader(ctx context.Context) (*proc.Node, error) {
	if err := s.led(ctx); err != nil {
		return nil, err
	}
	for _, n := range s.cluster.Nodes {
		if !n.Up() {
			continue
		}
		c, err := millrace.Dial(ctx, millrace.Insecure(), millrace.Address(n.API), millrace.Token(s.token), millrace.Namespace(s.namespace),
			millrace.Logger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return nil, err
		}
		info, err := c.Namespace(ctx)
		_ = c.Close()
		if err != nil {
			return nil, err
		}
		at := info.Partitions[0].Address
		if at == "" {
			return n, nil
		}
		for _, n := range s.cluster.Nodes {
			if n.API == at {
				return n, nil
			}
		}
	}
	return nil, errors.New("no node says who leads")
}

// led waits until every partition has a leader.
func (s *server) led(ctx context.Context) error {
	for {
		info, err := s.client.Namespace(ctx)
		if err != nil {
			return err
		}
		all := len(info.Partitions) == s.partitions
		for _, p := range info.Partitions {
			all = all && p.Led
		}
		if all {
			return nil
		}
		if err := proc.Rest(ctx, 10*time.Millisecond); err != nil {
			return errors.New("not every partition has a leader")
		}
	}
}

// revive lets the node that was paused go on, and starts those that were killed.
func (s *server) revive(ctx context.Context) error {
	if s.paused != nil {
		if err := s.paused.Resume(); err != nil {
			return err
		}
		s.paused = nil
	}
	for _, n := range s.cluster.Nodes {
		if !n.Up() {
			if _, err := n.Start(ctx); err != nil {
				return err
			}
		}
	}
	return s.led(ctx)
}
