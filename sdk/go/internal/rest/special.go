package rest

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// method carries out a unary call.
type method func(r *Conn, ctx context.Context, in, out proto.Message) error

// special are the methods that need more than their route, each for the reason that its function gives.
var special = map[string]method{
	pb.TaskService_Wait_FullMethodName:      of((*Conn).wait),
	pb.KVService_Get_FullMethodName:         of((*Conn).getKey),
	pb.KVService_Put_FullMethodName:         of((*Conn).putKey),
	pb.KVService_DeleteRange_FullMethodName: of((*Conn).deleteKeys),
	pb.RefService_GetRef_FullMethodName:     of((*Conn).getRef),
	pb.TaskService_Claim_FullMethodName:     of((*Conn).claim),
	pb.BatchService_Wait_FullMethodName:     of((*Conn).waitBatch),
}

// of makes a method of one that names the types of its messages.
func of[In, Out proto.Message](do func(r *Conn, ctx context.Context, in In, out Out) error) method {
	return func(r *Conn, ctx context.Context, in, out proto.Message) error {
		req, ok := in.(In)
		resp, also := out.(Out)
		if !ok || !also {
			return status.Errorf(codes.Internal, "messages %T and %T are not of this method", in, out)
		}
		return do(r, ctx, req, resp)
	}
}

// claim lets the request take as long as the server may wait.
func (r *Conn) claim(ctx context.Context, in *pb.ClaimRequest, out *pb.ClaimResponse) error {
	c, err := prepare(pb.TaskService_Claim_FullMethodName, in, room)
	if err != nil {
		return err
	}
	c.q.wait = max(in.GetWait().AsDuration(), 0)
	return r.carry(ctx, c, out)
}

// wait asks for the end of a task again and again, each time waiting there, and then reads the task.
func (r *Conn) wait(ctx context.Context, in *pb.WaitRequest, out *pb.WaitResponse) error {
	c, err := prepare(pb.TaskService_Wait_FullMethodName, in, room)
	if err != nil {
		return err
	}
	ended := new(pb.Task)
	at, err := r.untilEnd(ctx, c, ended, func() bool { return ended.GetState() >= pb.State_COMPLETED })
	if err != nil {
		return err
	}
	// What a wait answers lacks parts of the task, so it is read, at the place where it ended or later.
	full := new(pb.GetResponse)
	err = r.invoke(ctx, pb.TaskService_Get_FullMethodName, &pb.GetRequest{Id: in.GetId(), MinIndex: at.GetIndex()}, full)
	if f, ok := errors.AsType[*Fault](err); ok && f.origin == byServer && f.wire.GetCode() == wire.NotFound {
		ended.Id, ended.HasResult = in.GetId(), ended.Result != nil
		full.Task, err = ended, nil // it was removed at its end, which this still knows
	}
	out.Task, out.At = full.GetTask(), at
	return err
}

// waitBatch asks for the end of a batch again and again, each time waiting there.
func (r *Conn) waitBatch(ctx context.Context, in *pb.WaitBatchRequest, out *pb.WaitBatchResponse) error {
	c, err := prepare(pb.BatchService_Wait_FullMethodName, in, room)
	if err != nil {
		return err
	}
	b := new(pb.Batch)
	out.At, err = r.untilEnd(ctx, c, b, func() bool { return b.GetState() == pb.Batch_FINISHED })
	if err == nil {
		out.Batch = b
	}
	return err
}

// untilEnd asks for something again and again, each time waiting there, until what is read into it has ended. It returns where that was.
func (r *Conn) untilEnd(ctx context.Context, c prepared, into proto.Message, ended func() bool) (*pb.At, error) {
	// Each request waits as long as what is in between allows: a wait of hours is many requests.
	poll := newRESTPoll()
	for try := 0; ; {
		proto.Reset(into)
		began := time.Now()
		c.q.query, c.q.wait = url.Values{"wait": {poll.wait.String()}}, poll.wait
		a, err := r.call(ctx, c.q, into)
		took := time.Since(began)
		done := ended()
		switch {
		case err != nil && poll.missed(err, took), err == nil && !done && took >= pollLeast:
			continue
		case err != nil:
			return nil, err
		case !done: // answered by something that does not wait
			retry.Sleep(ctx, max(retry.Backoff(try), retry.Base))
			try++
			continue
		}
		return a.at(), nil
	}
}

// getKey takes the value as it stands, and its revision and its writer from headers. A key that is absent is an answer.
func (r *Conn) getKey(ctx context.Context, in *pb.KVGetRequest, out *pb.KVGetResponse) error {
	c, err := prepare(pb.KVService_Get_FullMethodName, in, room)
	if err != nil {
		return err
	}
	a, err := r.do(ctx, c.q)
	// A proxy that does not know the path says so too, in a form of its own: that is an error.
	if f, ok := errors.AsType[*Fault](err); ok && f.origin == byServer && f.wire.GetCode() == wire.NotFound {
		return nil // out says that it is absent
	}
	if err != nil {
		return err
	}
	if out.Rev, err = strconv.ParseUint(a.header.Get("Millrace-Rev"), 10, 64); err != nil {
		return restBetween(a)
	}
	if by := a.header.Get("Millrace-Writer"); by != "" {
		if out.Writer = writerOf(by); out.Writer == nil {
			return restBetween(a)
		}
	}
	out.Value, out.Found, out.At = a.body, true, a.at()
	return nil
}

// writerOf reads the task that wrote a key, and its token behind a blank; nil for another text.
func writerOf(s string) *pb.KeyWriter {
	task, token, ok := strings.Cut(s, " ")
	n, err := strconv.ParseUint(token, 10, 64)
	if !ok || task == "" || err != nil {
		return nil
	}
	return &pb.KeyWriter{Task: task, Token: n}
}

// putKey is a commit: a path has no room for every key.
func (r *Conn) putKey(ctx context.Context, in *pb.KVPutRequest, out *pb.KVPutResponse) error {
	op := &pb.Op{Op: &pb.Op_KvPut{KvPut: in.GetPut()}}
	c := new(pb.CommitResponse)
	if err := r.invoke(ctx, pb.CommitService_Commit_FullMethodName, &pb.CommitRequest{Ops: []*pb.Op{op}, RequestId: in.GetRequestId()}, c); err != nil {
		return err
	}
	one := c.Results[0]
	out.Rev, out.Prev, out.Existed, out.At = one.Rev, one.Prev, one.Existed, c.At
	return nil
}

// deleteKeys says that all keys are meant where no bound is given.
func (r *Conn) deleteKeys(ctx context.Context, in *pb.KVDeleteRangeRequest, out *pb.KVDeleteRangeResponse) error {
	c, err := prepare(pb.KVService_DeleteRange_FullMethodName, in, room)
	if err != nil {
		return err
	}
	c.allKeys()
	return r.carry(ctx, c, out)
}

// allKeys names the range of all keys where the query names none.
func (c *prepared) allKeys() {
	for _, name := range []string{"prefix", "from", "to"} {
		if c.q.query.Has(name) {
			return
		}
	}
	c.q.query.Set("prefix", "")
}

// getRef refuses a name before which the route would put refs/.
func (r *Conn) getRef(ctx context.Context, in *pb.GetRefRequest, out *pb.GetRefResponse) error {
	if in.GetName() != "HEAD" && !strings.HasPrefix(in.GetName(), "refs/") {
		return refusedHere("name", "is neither HEAD nor below refs/")
	}
	return r.invoke(ctx, pb.RefService_GetRef_FullMethodName, in, out)
}

// creates prepares a batch of creates.
func creates(in *pb.BatchCreateRequest) (prepared, error) {
	// Base64 takes four bytes for three, and each task some for its names and quotes.
	size := 64
	for _, t := range in.GetTasks() {
		size += 4*wire.Size(t)/3 + 128
	}
	return prepare(pb.TaskService_BatchCreate_FullMethodName, in, size)
}

// settles prepares a batch of settles.
func settles(items []*pb.SettleItem) (prepared, error) {
	size := 64
	for _, it := range items {
		size += 4*len(it.GetComplete().GetResult())/3 + 192
	}
	return prepare(pb.TaskService_Settle_FullMethodName, &pb.SettleRequest{Items: items}, size)
}

// beats prepares a batch of heartbeats.
func beats(in *pb.HeartbeatRequest) (prepared, error) {
	return prepare(pb.TaskService_Heartbeat_FullMethodName, in, 64+64*len(in.GetItems()))
}
