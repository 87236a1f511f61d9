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
// How it works: calls of many goroutines share one stream. What is called while a frame is being written joins the
// next frame, so a busy client sends few and big frames and an idle one waits for nothing. A worker has a stream of its
// own, on which tasks are pushed to free slots; leases are renewed while the handlers run. A stream that breaks is opened
// again under the same session: leases go on, and what was not acknowledged is sent again under the same ids and tokens.
//
// A namespace may have several partitions (Client.CreateNamespace), each led by some node of a cluster and atomic in itself.
// The client then has a stream for each one that it uses: a stream that follows that partition's leader; streams to one node
// share a connection, and reads go to the leader too. A task is of the partition of its tag (Tag), else of its unique
// key, else of its id, which the client makes; a key is of that of the text in its first pair of braces, else of all of it.
// So a task with the tag user/1 may write {user/1}/name. A batch may be of many partitions; a Tx, an atomic batch and the
// effects of a task are of one, else they are ErrPartition before anything is sent. A worker takes tasks of all partitions:
// its slots are divided evenly, and idle ones go where all are used; when there are fewer than partitions they travel.
//
// Where something on the way lets no gRPC through, such as a proxy of HTTP/1.1, the same program runs over REST: a client
// finds that out by itself, goes back to its streams when gRPC comes through, and Client.Transport says which is in use.
// Nothing that is under way is lost or done twice; only commits without a fence whose answer was missing when the way
// changed end as unknown. Over REST each frame is a request, a worker claims by a request that waits, and a lost lease is
// heard of at the next renewal.
//
// Promised: a call ends as ok, refused or unknown (OutcomeOf), at most a second after its context ends. Refused means
// that nothing changed. Unknown means that it may have been applied, and that repeating it under the same id is safe.
// A worker that lost its lease changes nothing, whatever its handler returns.
package millrace
