package api

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// stuck are handlers that stand for any: each tells on began that it runs, and ends by itself in one way only.
func stuck(began chan<- struct{}, free <-chan struct{}) map[string]grpc.StreamHandler {
	return map[string]grpc.StreamHandler{
		"waits": func(_ any, ss grpc.ServerStream) error {
			began <- struct{}{}
			<-ss.Context().Done()
			return ss.Context().Err()
		},
		"reads": func(_ any, ss grpc.ServerStream) error {
			err := ss.RecvMsg(&inbound{limit: kib, raw: true})
			began <- struct{}{}
			if err != nil {
				return err
			}
			return ss.RecvMsg(&inbound{limit: kib, raw: true}) // which may never come
		},
		"heeds nothing": func(any, grpc.ServerStream) error {
			began <- struct{}{}
			<-free
			return nil
		},
	}
}

// served are all services of the contract, also those that are added.
func served(s *Server) []service {
	out := s.services()
	for _, desc := range added {
		out = append(out, service{desc, nil})
	}
	return out
}

// serveStuck serves every method of the contract, each with the same handler, as the server would serve the real one.
func serveStuck(r *rig, h grpc.StreamHandler) (*grpc.ClientConn, func()) {
	r.t.Helper()
	if _, err := pb.NewServerServiceClient(r.conn).Status(apitest.As("acme/all"), &pb.StatusRequest{}); err != nil { // it serves
		r.t.Fatal(err)
	}
	own := r.s.grpc
	r.s.grpc = grpc.NewServer(r.s.serverOptions()...)
	for _, svc := range served(r.s) {
		desc := *svc.desc
		desc.Methods, desc.Streams = nil, nil
		for _, m := range svc.desc.Methods {
			m.Handler = func(_ any, ctx context.Context, _ func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				return nil, h(nil, &guardedStream{ctx: ctx})
			}
			desc.Methods = append(desc.Methods, m)
		}
		for _, m := range svc.desc.Streams {
			m.Handler = h
			desc.Streams = append(desc.Streams, m)
		}
		if err := r.s.register(&desc, svc.impl); err != nil {
			r.t.Fatal(err)
		}
	}
	served, lis := r.s.grpc, bufconn.Listen(1<<20)
	r.s.grpc = own
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = served.Serve(lis) // its end is the test's
	}()
	conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		r.t.Fatal(err)
	}
	return conn, func() {
		_ = conn.Close()
		served.Stop()
		<-over
	}
}

func TestEveryMethodOfTheContractEndsWithItsToken(t *testing.T) {
	began, free := make(chan struct{}), make(chan struct{})
	for kind, h := range stuck(began, free) {
		r := newRig(t, edge.Limits{})
		conn, stop := serveStuck(r, h)
		for _, svc := range served(r.s) {
			names := make(map[string]bool)
			for _, m := range svc.desc.Streams {
				if kind != "reads" || m.ClientStreams {
					names["/"+svc.desc.ServiceName+"/"+m.StreamName] = true
				}
			}
			for _, m := range svc.desc.Methods {
				if kind == "waits" { // what a unary call waits for, else, has bounds of its own
					names["/"+svc.desc.ServiceName+"/"+m.MethodName] = true
				}
			}
			for name := range names {
				if methods[name].Public {
					continue
				}
				const token = "acme/all/99h"
				r.auth.Mu.Lock()
				delete(r.auth.Revoked, token)
				r.auth.Mu.Unlock()
				ctx, cancel := context.WithCancel(apitest.As(token))
				stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, name)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if err := stream.SendMsg(new(pb.StatusRequest)); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				<-began
				r.auth.Revoke(token)
				r.s.Live.Sweep()
				end := make(chan error, 1)
				go func() { end <- stream.RecvMsg(new(pb.StatusResponse)) }()
				apitest.Eventually(t, "the end of "+name, func() bool {
					select {
					case err = <-end:
						return true
					default:
						r.clock.Advance(endWait)
						return false
					}
				})
				apitest.ExpectCode(t, name+", which "+kind, err, codes.Unauthenticated)
				cancel()
			}
		}
		if kind == "heeds nothing" {
			close(free)
		}
		stop()
	}
}

func TestTheEndOfATokenHidesNoAnswer(t *testing.T) {
	r := newRig(t, edge.Limits{})
	who, _ := r.s.CallerBy("acme/all", "")
	call := r.s.Live.Begin(context.Background(), who, auth.Rights{})
	defer call.End()
	for _, err := range []error{nil, core.NotFound{Kind: "task"}, context.Canceled} {
		if got := edge.Revoked(call, err); got != err { //nolint:errorlint // it is the same
			t.Errorf("before its end %v became %v", err, got)
		}
	}
	r.auth.Revoke("acme/all")
	r.s.Live.Sweep()
	for _, c := range []struct{ err, want error }{
		{nil, nil},
		{core.NotFound{Kind: "task"}, core.NotFound{Kind: "task"}},
		{core.Exhausted{Limit: "disk"}, core.Exhausted{Limit: "disk"}},
		{context.Canceled, core.Unauthenticated{}},
		{core.Unavailable{Reason: "cancelled"}, core.Unauthenticated{}},
		{core.Unavailable{Reason: "leader_unreached", Unknown: true}, edge.EndedMeanwhile{}},
		{core.DeadlineExceeded{Unknown: true}, edge.EndedMeanwhile{}},
	} {
		if got := edge.Revoked(call, c.err); got != c.want { //nolint:errorlint // it is the same
			t.Errorf("%v became %v, want %v", c.err, got, c.want)
		}
	}
}
