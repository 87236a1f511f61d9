// Package session is the engine behind the streams of the SDK: it keeps one stream open under one session id for each partition and
// role, and sends again what was not acknowledged.
//
// There are three roles. A producer stream carries the creates and commits of all goroutines of a client; Producers finds the one of a
// call's partition. A put stream carries the puts of one KVStream; Puts holds them by partition. A worker stream carries the leases of
// a worker's tasks, their renewals and their settles; a Worker divides its slots over its streams and runs the handlers.
//
// What a session sends has a frame with a number, and stays in the session until the ack of that number comes. When the stream breaks,
// the session opens the next one and its role sends the same again, under what makes that safe: the id of a task, the token of a lease,
// a number that rises over the life of the session, or a request id.
//
// The package knows messages of the contract and no type of users: errors are Faults, a task is an Attempt that carries what the user
// sees of it without looking at it, and handlers are called through an interface. A Hub is what all streams of a client share.
//
// Each session has a mutex, which guards its role too; the streams of one worker share theirs. No mutex is held while a frame is written
// or read, while a handler runs, or while acked is called.
package session
