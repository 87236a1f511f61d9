package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/internal/server"
)

// startCluster starts the servers of a row where its topology says. A target is taken as it is,
// with a namespace that no run used before.
func (u *runner) startCluster(ctx context.Context, spec runSpec) (*cluster, error) {
	switch {
	case spec.row.Servers != "":
		return u.startBare(ctx, &spec)
	case spec.topology == Remote:
		return &cluster{
			endpoints: []Endpoint{{Name: "target", Address: u.c.Target}}, token: u.c.Token, namespace: "bench-" + u.namespaceID(), insecure: u.c.Insecure,
			close: func() error { return nil },
		}, nil
	case spec.topology == InProc:
		return u.startInProc(ctx, spec)
	}
	return u.startProcs(ctx, spec)
}

// namespaceID names a fresh namespace: nothing on a running server is touched.
func (u *runner) namespaceID() string { return digest(u.r.ID, time.Now().UnixNano())[:12] }

// startInProc starts a server in this process. It has no processes to watch, no admin listener, and
// cannot be killed; its CPU is that of the driver.
func (u *runner) startInProc(ctx context.Context, spec runSpec) (*cluster, error) {
	dir, err := os.MkdirTemp(u.c.dataParent(), "millrace-bench-")
	if err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	token := server.NewToken()
	o, err := server.Dev(server.Options{
		Dir: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", Admin: "off", Durability: server.Durability(spec.durability),
		Shards: max(spec.shape.Shards, 1), Memory: int64(spec.shape.Memory) << 20, Version: u.c.Version, OneCommitPerEntry: !spec.group,
	}, token)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s, err := server.Start(ctx, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start server in this process: %w", err), os.RemoveAll(dir))
	}
	return &cluster{
		endpoints: []Endpoint{{Name: "server-1", Address: s.Address, HTTP: base(s.HTTPAddress)}}, token: token, namespace: namespaceOf(spec.shape), dir: dir,
		close: func() error { return s.Close(termWithin) },
	}, nil
}
