// Package millrace is the Go SDK of Millrace, a durable work queue whose side effects commit with the task.
//
// One typed declaration is both the producer's handle and the worker's binding:
//
//	var Thumb = millrace.Job[Args, Out]("image.thumb").Queue("img").Attempts(8)
//
//	h, err := Thumb.Add(ctx, c, Args{URL: u})                 // c from millrace.Dial
//	out, err := h.Wait(ctx)
//
//	w := c.Worker(millrace.Slots(64))
//	Thumb.Handle(w, func(ctx context.Context, t *millrace.Task, a Args) (Out, error) {
//		t.Effects().KV("thumbs").Put(t.ID, png)               // stored exactly when the task completes
//		return out, nil                                       // or Fatal(err), RetryIn(d, err), Snooze(d)
//	})
//	err = w.Run(ctx)                                          // until ctx ends, then drains
//
// # Promises
//
// A call ends as ok, refused or unknown (OutcomeOf), at most a second after its context ends, or after 30 seconds if that has no
// deadline (Timeout). Refused means that nothing changed. Unknown means that it may have been applied, and that repeating it under the same id is safe. A worker that lost
// its lease changes nothing, whatever its handler returns.
//
// # Options
//
// Settings of a job are methods that return a changed copy. What changes one call is an option: a function such as ID or
// IfAbsent, which returns a value of an interface that only this package implements. One option may serve several calls, as
// IfRev does. What a call asks for, if it is more than a name, is a struct, such as Search or ClaimQuery.
//
// # Examples by topic
//
//   - Add tasks: JobOf.Add, JobOf.Add (Options), JobOf.Queue, JobOf.AddMany, JobOf.AddAll, ID, UniqueKey, In.
//   - Handle tasks: Task.Effects, JobOf.AddTx, JobOf.Lease, Fatal, RetryIn, Snooze, Release, Task.OnRefused,
//     Worker.HandleBatch, Client.Claim.
//   - Operate: Client.Cancel, Client.Retry, Client.Edit, Client.ForceRelease, Queue.Pause, Client.Workers, Client.Errors, Labels, Tx.CancelTask.
//   - Read results: JobOf.Of.
//   - Write together: Client.Commit, TxKV.Check, Tx.Fence, Tag.
//   - Keys and values: IfRev, KV.Add, KV.Range, KV.Stream, Value.Decode.
//   - Git refs and search: Repo.Update, Collection.Search, Tx.Collection.
//   - Namespaces and partitions: Client.CreateNamespace, Tag, JobOf.AddMany (Partitions).
//   - Connect and stop: Dial, Client.SetToken, Transport, Worker.Run, Client.Close.
//   - Receive webhooks: VerifyWebhook.
//   - Errors: Error, OutcomeOf.
//   - Tests without a server: RunHandler, Recorder, Recorder.DrainOnWait.
//
// # How it works
//
// Calls of many goroutines share one stream. What is called while a frame is being written joins the next frame, so a busy
// client sends few and big frames and an idle one waits for nothing. A worker has a stream of its own, on which tasks are
// pushed to free slots; leases are renewed while the handlers run. A stream that breaks is opened again under the same
// session: leases go on, and what was not acknowledged is sent again under the same ids and tokens. DESIGN.md has the rest.
//
// # Partitions
//
// A namespace may have several partitions (Client.CreateNamespace). Each is led by some node of a cluster, and changes
// atomically. The client opens a stream for each partition that it uses, which follows that partition's leader.
//
// A task belongs to the partition of its tag (Tag), else of its unique key, else of its id, which the client makes. A key
// belongs to the partition of the text in its first pair of braces, else of the whole key. So a task with the tag user/1 may
// write {user/1}/name. The tasks of AddMany may be of many partitions. A Tx, a batch of AddAll and the effects of a task must
// be of one, else they are ErrPartition before anything is sent. A worker takes tasks of all partitions: its slots are divided
// evenly, and idle ones go where all are used.
//
// # REST
//
// Where something between client and server lets no gRPC through, such as a proxy of HTTP/1.1, the same program runs over
// REST. The client finds that out by itself, returns to its streams when gRPC comes through, and Client.Transport says which
// is in use. Nothing that is under way is lost or done twice. Only commits without a fence whose answer was missing when the
// transport changed end as unknown. Over REST each frame is a request, a worker claims by a request that waits, and a lost
// lease or a cancel is noticed at the next renewal.
package millrace
