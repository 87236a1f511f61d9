package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/env"
)

// The operator's socket is how an operator on the machine changes the cluster without a token: a file that only the server's own
// user and root can open, where a listener on loopback would be open to every process of the machine. Changes from elsewhere go
// through the API, with a token that has the scope cluster.

// socketName is the socket's name in the data directory.
const socketName = "operator.sock"

// actor is who asks for a change, and from where, for the log.
type actor struct{ who, from string }

type actorKey struct{}

// actorOf tells who asks: a process at the socket, or the holder of a token.
func actorOf(ctx context.Context) actor {
	if a, ok := ctx.Value(actorKey{}).(actor); ok {
		return a
	}
	who, from := api.Asker(ctx)
	return actor{who, from}
}

// audit logs a change that an operator asked for, and what came of it.
func (o *Options) audit(ctx context.Context, what string, err error, attrs ...any) {
	a := actorOf(ctx)
	attrs = append([]any{"what", what, "by", a.who, "from", a.from}, attrs...)
	if err != nil {
		o.Logger.Warn("operator: refused or failed", append(attrs, "error", err)...)
		return
	}
	o.Logger.Info("operator: done", attrs...)
}

// socket is the operator's socket while it is served.
type socket struct {
	http   *http.Server
	served chan error
}

// socketPath is where the socket is; required: the settings name it.
func (o *Options) socketPath() (path string, required bool) {
	switch o.AdminSocket {
	case off:
		return "", false
	case "":
		return filepath.Join(o.Dir, socketName), false
	}
	return o.AdminSocket, true
}

// openSocket opens the socket, unless it is off, and serves. Only then the data directory is this process's own.
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
			own, ok := c.(*env.SocketConn)
			if !ok {
				return ctx // nothing else is accepted
			}
			who := fmt.Sprintf("uid %d, pid %d", own.Peer.UID, own.Peer.PID)
			return context.WithValue(ctx, actorKey{}, actor{who, "socket " + r.SocketPath})
		},
	}}
	crowd := newCrowd(r.o.adminConnections())
	crowd.bound(r.socket.http)
	go func() { r.socket.served <- r.socket.http.Serve(lis) }()
	return nil
}

// close ends every connection, and returns when the socket is gone.
func (s *socket) close() error {
	err := s.http.Close()
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// operatorHandler is what the socket serves: what changes the cluster, and how it stands.
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
