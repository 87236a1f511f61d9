package api

import (
	"context"
	"slices"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// WorkerBackend tells of workers what the nodes know that lead the partitions they take tasks of.
type WorkerBackend interface {
	// Workers lists the workers of a namespace with these partitions, by id and host. partial says that a leader was not known or
	// did not answer, or that there are more.
	Workers(ctx context.Context, parts []core.PartitionInfo) (list []core.Worker, partial bool)
	// Quiet gives a worker no further tasks, or takes that back; changed says that a leader had it otherwise. An error leaves the
	// outcome unknown, and the call may be repeated.
	Quiet(ctx context.Context, parts []core.PartitionInfo, id string, on bool) (changed bool, err error)
}

// WorkerService shows who takes tasks of a namespace.
type WorkerService struct {
	pb.UnimplementedWorkerServiceServer
	s       *Server // what all services share
	workers WorkerBackend
}

// Workers is the service of workers.
func (s *Server) Workers() *WorkerService { return &WorkerService{s: s, workers: s.o.Backend} }

// List lists who takes tasks of a namespace, or of a queue.
func (ws *WorkerService) List(ctx context.Context, in *pb.ListWorkersRequest) (*pb.ListWorkersResponse, error) {
	if in.GetQueue() != "" {
		if fact := QueueName("queue", in.GetQueue()); fact != nil {
			return nil, fact
		}
		if fact := ws.s.reachesQueue(ctx, in.GetQueue()); fact != nil {
			return nil, fact
		}
	}
	c, err := ws.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return &pb.ListWorkersResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	list, partial := ws.workers.Workers(ctx, c.partitions)
	out := &pb.ListWorkersResponse{}
	list = slices.DeleteFunc(list, func(w core.Worker) bool { return !c.reachesWorker(&w) })
	out.Workers, out.Partial = showWorkers(list, in.GetQueue())
	out.Partial = out.Partial || partial
	return out, nil
}

// showWorkers shows the workers of a queue, or of any if it is empty. cut says that there are more than one answer has room for,
// whatever workers call themselves and their kinds.
func showWorkers(list []core.Worker, queue string) (out []*pb.Worker, cut bool) {
	room := AnswerBytes
	for i := range list {
		w := &list[i]
		if queue != "" && !slices.Contains(w.Queues, queue) {
			continue
		}
		if room -= workerBytes(w); room < 0 {
			return out, true
		}
		out = append(out, showWorker(w))
	}
	return out, false
}

// workerBytes is about what a worker takes in an answer.
func workerBytes(w *core.Worker) int {
	n := 256 + 40*len(w.Sessions) + len(w.ID) + len(w.Host) + len(w.SDK)
	for _, list := range [][]string{w.Queues, w.Kinds, w.Nodes} {
		for _, s := range list {
			n += 4 + len(s)
		}
	}
	return n
}

// showWorker shows a worker.
func showWorker(w *core.Worker) *pb.Worker {
	out := &pb.Worker{
		Id: w.ID, Host: w.Host, Sdk: w.SDK, Queues: w.Queues, Kinds: w.Kinds, Slots: uint32(w.Slots), Running: uint32(w.Running),
		OldestLease: TimeOf(w.OldestLease), ConnectedAt: TimeOf(w.Since), SeenAt: TimeOf(w.Seen), Nodes: w.Nodes, Quiet: w.Quiet,
	}
	for _, id := range w.Sessions {
		out.Sessions = append(out.Sessions, sessionName(id))
	}
	return out
}

// Quiet gives a worker no further tasks, or takes that back.
// Errors: NotFound for a worker that no leader knows.
func (ws *WorkerService) Quiet(ctx context.Context, in *pb.QuietWorkerRequest) (*pb.QuietWorkerResponse, error) {
	if in.GetWorker() == "" {
		return nil, edge.Invalid("worker", "is required")
	}
	if fact := TextUpTo("worker", in.GetWorker(), "worker_bytes", ws.s.Limits.WorkerBytes); fact != nil {
		return nil, fact
	}
	unknown := core.NotFound{Kind: "worker", ID: in.GetWorker()}
	c, err := ws.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return nil, unknown
	}
	if err != nil {
		return nil, err
	}
	list, partial := ws.workers.Workers(ctx, c.partitions)
	// One that is quiet takes no task of any of its queues.
	if !c.reachesAs(list, in.GetWorker()) {
		return nil, unknown
	}
	known := slices.ContainsFunc(list, func(w core.Worker) bool { return w.ID == in.GetWorker() })
	// Names that no worker has are not remembered. One that was away may still be quiet.
	if !known && in.GetOn() && !partial {
		return nil, unknown
	}
	changed, err := ws.workers.Quiet(ctx, c.partitions, in.GetWorker(), in.GetOn())
	switch {
	case err != nil:
		return nil, err
	case !known && !changed:
		return nil, unknown
	}
	return &pb.QuietWorkerResponse{Replayed: !changed}, nil
}
