package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// ourSide is Millrace: one stream that creates, and one worker with as many slots as the run has. All its fields but
// done are set before the first call.
type ourSide struct {
	// rig is the run, with the ledger that the harness audits.
	rig *bench.Rig
	// job names the queue and the lease.
	job *millrace.JobOf[[]byte, []byte]
	// producer is the client of all callers; consumer is that of the worker, on a connection of its own.
	producer *millrace.Client
	consumer *millrace.Client
	// payloads is the payload of the run, repeated: a call of n tasks sends the first n.
	payloads [][]byte
	// done is the number of completions that were acknowledged. The worker's goroutines add to it.
	done atomic.Uint64
	// traces times the way from create to claim.
	traces *traces
	// stop ends the worker; ended then gets what its Run returned, once.
	stop  context.CancelFunc
	ended chan error
}

// millraceLane opens Millrace and starts its worker. The harness audits it, by the ledger that is kept here.
func millraceLane(ctx context.Context, rig *bench.Rig) (*lane, error) {
	l := newLane("ours", rig, "create", rig.Servers[0].Address)
	s := &ourSide{
		rig: rig, job: millrace.Job[[]byte, []byte](rig.Queue).Queue(rig.Queue).Lease(rig.Shape.Lease), traces: newTraces(rig.Op("create_to_claim")),
		ended: make(chan error, 1),
	}
	for range max(rig.Shape.ProducerBatch, 1) {
		s.payloads = append(s.payloads, rig.Payload)
	}
	var err error
	if s.producer, err = rig.Dial(ctx, 0); err != nil {
		return nil, fmt.Errorf("connect to millrace: %w", err)
	}
	if s.consumer, err = rig.Dial(ctx, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to millrace: %w", err), s.producer.Close())
	}
	complete := rig.Op("complete")
	w := s.consumer.Worker(millrace.Slots(max(rig.Shape.Slots, 1)), millrace.DrainTimeout(time.Second), millrace.OnSettled(func(m millrace.Settlement) {
		switch {
		case m.Err != nil:
			if m.Err.Outcome == millrace.Unknown {
				rig.Ledger.CompleteUnknown(m.Task.ID, m.Task.Token())
			}
			complete.Record(0, time.Time{}, 0, m.Err)
		case m.Op != "complete":
			complete.Record(0, time.Time{}, 0, fmt.Errorf("the attempt ended as %s", m.Op))
		default:
			rig.Ledger.Completed(m.Task.ID, m.Task.Token(), m.Replayed)
			complete.Count(0, 1)
			s.done.Add(1)
		}
	}))
	w.HandleRaw(rig.Queue, func(_ context.Context, t *millrace.Task) ([]byte, error) {
		// Both ends of a task give the same key: the ledger's hash of its id without the low byte, as in create.
		s.traces.note(rig.Ledger.Hash(t.ID)>>8, time.Time{}, time.Now())
		l.handled()
		return rig.Result, nil
	})
	working, cancel := context.WithCancel(ctx)
	s.stop = cancel
	go func() { s.ended <- w.Run(working) }()
	l.queueSystem = s
	return l, nil
}

// create creates n tasks, and notes in the ledger which ones are known by their id. If the answer leaves it open
// whether the others were created, they are noted as unknown.
func (s *ourSide) create(ctx context.Context, _, n int) (made int, err error) {
	at := time.Now()
	var handles []*millrace.Handle[[]byte]
	if n == 1 {
		var h *millrace.Handle[[]byte]
		if h, err = s.job.Add(ctx, s.producer, s.rig.Payload); err == nil {
			handles = append(handles, h)
		}
	} else {
		handles, err = s.job.AddMany(ctx, s.producer, s.payloads[:n])
	}
	for _, h := range handles {
		if h != nil {
			made++
			s.traces.note(s.rig.Ledger.Created(h.ID)>>8, at, time.Time{})
		}
	}
	if e, ok := errors.AsType[*millrace.Error](err); err != nil && (!ok || e.Outcome != millrace.Refused) {
		s.rig.Ledger.CreateUnknown(n - made)
	}
	return made, err
}

// settled returns the number of completions that the worker has seen acknowledged.
func (s *ourSide) settled(context.Context) (uint64, error) { return s.done.Load(), nil }

// left adds up the tasks of the queue in every state in which a task has not ended.
func (s *ourSide) left(ctx context.Context) (uint64, error) {
	q, err := s.producer.Queue(s.rig.Queue).Stats(ctx)
	return q.Blocked + q.Scheduled + q.Ready + q.Running, err
}

// fsyncs returns what the servers count themselves.
func (s *ourSide) fsyncs(ctx context.Context) (float64, error) {
	st, err := s.producer.Status(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask millrace what it has done: %w", err)
	}
	return float64(st.Fsyncs), nil
}

// close stops the worker, waits until its Run returns, and closes both clients.
func (s *ourSide) close(context.Context) error {
	s.stop()
	return errors.Join(<-s.ended, s.consumer.Close(), s.producer.Close())
}
