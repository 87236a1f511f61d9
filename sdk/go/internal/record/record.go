// Package record is a server in memory, for tests of programs that use a client. It speaks gRPC over connections within the process,
// so that all of the client's own code runs: it takes creates and commits, keeps tasks and keys, and answers reads of single ones.
//
// It has one partition and no clock of its own: nothing waits, no lease runs out, no unique key is free again. It judges the conditions
// and ops of keys and tasks as a server does, and neither limits nor rights. Changes of refs and of collections, and pauses of queues,
// are kept as they came. All else is refused with INVALID_ARGUMENT and the reason recorder.
package record

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/timestamppb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Server keeps what one client adds and commits. It may be used by many goroutines.
type Server struct {
	lis    *bufconn.Listener
	srv    *grpc.Server
	served sync.WaitGroup
	// waited is what OnWait was given.
	waited atomic.Pointer[func(ctx context.Context) error]

	mu sync.Mutex // guards what follows
	// index counts creates and commits, as places in a log; token counts the attempts.
	index, token uint64
	// tasks are by id, and order has them as they were added; the first ended of them have ended.
	tasks map[string]*task
	order []*task
	ended int
	// unique are the tasks that hold a unique key.
	unique map[uniqueKey]*task
	keys   map[keyName]row
	// ops are those of all commits, and of the effects of completions.
	ops []*millracev1.Op
	// undo takes back what the commit under way has changed, the last change first.
	undo []func()
}

const (
	connBytes = 256 << 10 // of a connection that are under way in one direction
	recvBytes = 16 << 20  // a frame has at most 4 MiB, and a call what the client sends
)

// New starts a server. Close ends it.
func New() *Server {
	s := &Server{
		lis: bufconn.Listen(connBytes), tasks: map[string]*task{}, unique: map[uniqueKey]*task{}, keys: map[keyName]row{},
	}
	s.srv = grpc.NewServer(
		grpc.UnknownServiceHandler(s.serve), grpc.MaxRecvMsgSize(recvBytes), grpc.MaxSendMsgSize(recvBytes),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: wire.PingEvery / 2, PermitWithoutStream: true}),
	)
	s.served.Go(func() { _ = s.srv.Serve(s.lis) }) // it fails when Close has closed lis
	return s
}

// Dial connects to the server.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) { return s.lis.DialContext(ctx) }

// Close ends the server and all connections. What it keeps can still be read.
func (s *Server) Close() {
	s.srv.Stop()
	_ = s.lis.Close() // never fails
	s.served.Wait()
}

// methods are those that the server has, by their full names.
var methods = map[string]func(s *Server, st grpc.ServerStream) error{
	millracev1.QueueStream_Open_FullMethodName:      (*Server).open,
	millracev1.TaskService_Get_FullMethodName:       unary((*Server).get),
	millracev1.TaskService_Wait_FullMethodName:      (*Server).wait,
	millracev1.TaskService_Cancel_FullMethodName:    unary((*Server).cancel),
	millracev1.TaskService_Report_FullMethodName:    unary((*Server).report),
	millracev1.TaskService_Logs_FullMethodName:      unary((*Server).logs),
	millracev1.KVService_Get_FullMethodName:         unary((*Server).getKey),
	millracev1.KVService_BatchGet_FullMethodName:    unary((*Server).getKeys),
	millracev1.KVService_Range_FullMethodName:       unary((*Server).readRange),
	millracev1.KVService_DeleteRange_FullMethodName: unary((*Server).deleteRange),
}

// unary serves a call of one request and one answer, which may be all that a stream of answers has. f is called with mu held.
func unary[Req, Resp any](f func(s *Server, req *Req) (*Resp, *millracev1.Error)) func(s *Server, st grpc.ServerStream) error {
	return func(s *Server, st grpc.ServerStream) error {
		req := new(Req)
		if err := st.RecvMsg(req); err != nil {
			return err
		}
		s.mu.Lock()
		resp, refusal := f(s, req)
		s.mu.Unlock()
		if refusal != nil {
			return statusOf(refusal)
		}
		return st.SendMsg(resp)
	}
}

// serve serves each call and stream that comes.
func (s *Server) serve(_ any, st grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(st) // every stream has one
	if serve := methods[name]; serve != nil {
		return serve(s, st)
	}
	return statusOf(Lacking(strings.TrimPrefix(name, "/millrace.v1.")))
}

// open serves the stream of a client's creates and commits.
func (s *Server) open(st grpc.ServerStream) error {
	hello := new(millracev1.ClientFrame)
	if err := st.RecvMsg(hello); err != nil {
		return err
	}
	if hello.GetHello().GetWorker() != nil {
		return statusOf(refused("a Recorder hands out no tasks: Drain runs the handlers of a worker, in place of Run"))
	}
	welcome := &millracev1.ServerFrame{Frame: &millracev1.ServerFrame_Welcome{Welcome: &millracev1.Welcome{Partitions: 1}}}
	if err := st.SendMsg(welcome); err != nil {
		return err
	}
	for {
		f := new(millracev1.ClientFrame)
		if err := st.RecvMsg(f); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var ack *millracev1.Ack
		switch x := f.Frame.(type) {
		case *millracev1.ClientFrame_Create:
			ack = s.createAll(x.Create)
		case *millracev1.ClientFrame_Commit:
			ack = s.commitFrame(x.Commit)
		case *millracev1.ClientFrame_Auth:
			continue
		default:
			return statusOf(Lacking("such frames"))
		}
		if err := st.SendMsg(&millracev1.ServerFrame{Frame: &millracev1.ServerFrame_Ack{Ack: ack}}); err != nil {
			return err
		}
	}
}

// at is where the server's log stands. It needs mu.
func (s *Server) at() *millracev1.At { return &millracev1.At{Index: s.index, Stamp: timestamppb.Now()} }

// next begins an entry of the log: a create or a commit. It needs mu.
func (s *Server) next() {
	s.index++
	s.undo = s.undo[:0]
}

// rollback takes back what the entry has changed. It needs mu.
func (s *Server) rollback() {
	for i := len(s.undo) - 1; i >= 0; i-- {
		s.undo[i]()
	}
	s.undo = s.undo[:0]
}

// Reason is that of the errors about what only a real server does.
const Reason = "recorder"

// refused is the error of what only a real server does.
func refused(text string) *millracev1.Error {
	return &millracev1.Error{Code: wire.InvalidArgument, Reason: Reason, Message: text}
}

// Lacking is the error of what a Recorder does not have.
func Lacking(what string) *millracev1.Error {
	return refused("a Recorder has no " + what + ": test this against a server")
}

// grpcCodes are the codes of gRPC that errors go out with; what is left out is FailedPrecondition.
var grpcCodes = map[string]codes.Code{
	wire.InvalidArgument: codes.InvalidArgument, wire.NotFound: codes.NotFound, wire.AlreadyExists: codes.AlreadyExists,
}

// statusOf is an error of the contract as gRPC carries it.
func statusOf(e *millracev1.Error) error {
	code, ok := grpcCodes[e.Code]
	if !ok {
		code = codes.FailedPrecondition
	}
	st, err := status.New(code, e.Message).WithDetails(e)
	if err != nil { // it fails for the code OK only
		return err
	}
	return st.Err()
}
