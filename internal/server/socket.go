package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"

	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
)

// The operator's socket is how an operator on the machine changes the cluster without a token: a file that only the server's own
// user and root can open, where a listener on loopback would be open to every process of the machine. Changes from elsewhere go
// through the API, with a token that has the scope cluster.

// socketName is the socket's name in the data directory.
const socketName = "operator.sock"

// actor is who asks for a change and from where, for the log.
type actor struct{ who, from string }

// actorKey is the key of the actor in the context of a connection to the socket.
type actorKey struct{}

// actorOf returns who asks: the process at the other end of the socket, or the holder of a token.
func actorOf(ctx context.Context) actor {
	if a, ok := ctx.Value(actorKey{}).(actor); ok {
		return a
	}
	who, from := edge.Asker(ctx)
	return actor{who, from}
}

// audit logs a change that an operator asked for, with its outcome.
func (o *Options) audit(ctx context.Context, what string, err error, attrs ...any) {
	a := actorOf(ctx)
	attrs = append([]any{"what", what, "by", a.who, "from", a.from}, attrs...)
	if err != nil {
		o.Logger.Warn("operator: refused or failed", append(attrs, "error", err)...)
		return
	}
	o.Logger.Info("operator: done", attrs...)
}

// socket is the operator's socket while it is served. served receives the end of serving, once.
type socket struct {
	http   *http.Server
	served chan error
}

// socketPath returns the path of the socket; empty if it is off. required says that the settings
// name the path, so that a failure is an error.
func (o *Options) socketPath() (path string, required bool) {
	switch o.AdminSocket {
	case off:
		return "", false
	case "":
		return filepath.Join(o.Dir, socketName), false
	}
	return o.AdminSocket, true
}

// openSocket opens the socket, unless it is off, and serves on it. The data directory must be
// locked: a socket file that is there is then left by a process that has ended.
func (r *Running) openSocket() error {
	path, required := r.o.socketPath()
	if path == "" {
		return nil
	}
	lis, err := env.ListenSocket(path, func(p env.SocketPeer) {
		r.o.Logger.Warn("operator: a process of another user is refused at the socket", "uid", p.UID, "pid", p.PID)
	})
	switch {
	case err != nil && !required: // the data directory is where it is, and not every file system has sockets
		r.o.Logger.Warn("no operator's socket: set admin-socket to another path, or to off", "error", err)
		return nil
	case errors.Is(err, env.ErrSocketPath):
		return fmt.Errorf("admin-socket: %w: set a shorter path, or off", err)
	case err != nil:
		return fmt.Errorf("admin-socket: %w: set another path, or off", err)
	}
	r.SocketPath = lis.Addr().String()
	r.socket = &socket{served: make(chan error, 1), http: &http.Server{
		Handler: r.admin.operatorHandler(), MaxHeaderBytes: adminHeaderBytes, ReadHeaderTimeout: adminHeaderWait, ReadTimeout: adminReadWait,
		WriteTimeout: adminWriteWait, IdleTimeout: adminIdleWait, ErrorLog: slog.NewLogLogger(r.o.Logger.Handler(), slog.LevelWarn),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			// The kernel says which process is at the other end, for the log.
			own, ok := c.(*env.SocketConn)
			if !ok {
				return ctx // nothing else is accepted
			}
			who := fmt.Sprintf("uid %d, pid %d", own.Peer.UID, own.Peer.PID)
			return context.WithValue(ctx, actorKey{}, actor{who, "socket " + r.SocketPath})
		},
	}}
	// The same limits as those of the admin listener.
	crowd := newCrowd(r.o.adminConnections())
	crowd.bound(r.socket.http)
	go func() { r.socket.served <- r.socket.http.Serve(lis) }()
	return nil
}

// close ends all connections and waits until serving has ended, which removes the socket.
func (s *socket) close() error {
	err := s.http.Close()
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// operatorHandler returns the routes of the socket: what changes the cluster or the profile rates,
// and the status. It needs no check of hosts or sites, as no browser can reach a socket.
func (a *admin) operatorHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /cluster/status", a.clusterStatus)
	mux.HandleFunc("POST /cluster/transfer", a.clusterTransfer)
	mux.HandleFunc("POST /cluster/balance", a.clusterBalance)
	mux.HandleFunc("POST /cluster/finalize", a.clusterFinalize)
	mux.HandleFunc("POST /cluster/members/{verb}", a.clusterChange)
	mux.HandleFunc("GET /debug/pprof/rates", a.showRates)
	mux.HandleFunc("POST /debug/pprof/rates", a.changeRates)
	return a.entered(mux)
}
