package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Commits, keys, queues and the server, by their routes.

func commitRequest(in *millracev1.CommitRequest, room int) restRequest {
	return post("/v1/commit", 4*room/3+256, func(w *restBody) { w.commit(in) })
}

func (r *Conn) commits(ctx context.Context, q restRequest, out *millracev1.CommitResponse) error {
	var body struct {
		Results  []restOpResult
		Replayed bool
	}
	a, err := r.call(ctx, q, &body)
	if err != nil {
		return err
	}
	out.Results, out.Replayed, out.At = restWire(body.Results, (*restOpResult).wire), body.Replayed, a.at()
	return nil
}

func (r *Conn) commit(ctx context.Context, in *millracev1.CommitRequest, out *millracev1.CommitResponse) error {
	return r.commits(ctx, commitRequest(in, 0), out)
}

func (r *Conn) getKey(ctx context.Context, in *millracev1.KVGetRequest, out *millracev1.KVGetResponse) error {
	switch {
	case in.GetKeyspace() == "":
		return refusedHere("keyspace", "must not be empty")
	case len(in.GetKey()) == 0:
		return refusedHere("key", "must not be empty")
	}
	path := "/v1/kv/" + restSegment(in.GetKeyspace()) + "/keys/" + restSegment(string(in.GetKey()))
	query := freshness(in.GetMinIndex(), in.GetStale())
	if d := in.GetMaxStaleness(); d != nil {
		query.Set("max_staleness", d.AsDuration().String())
	}
	a, err := r.do(ctx, get(path, query))
	if f, ok := errors.AsType[*Fault](err); ok && f.origin == byServer && f.wire.GetCode() == wire.NotFound {
		return nil // out says that it is absent
	}
	if err != nil {
		return err
	}
	if out.Rev, err = strconv.ParseUint(a.header.Get("Millrace-Rev"), 10, 64); err != nil {
		return restBetween(a)
	}
	out.Value, out.Found, out.At = a.body, true, a.at()
	return nil
}

func (r *Conn) listQueues(ctx context.Context, in *millracev1.ListQueuesRequest, out *millracev1.ListQueuesResponse) error {
	var body struct {
		Queues []restStats
		Cursor string
	}
	a, err := r.call(ctx, get(routeQueues, pageOf(in.GetLimit(), in.GetCursor())), &body)
	if err != nil {
		return err
	}
	out.Queues, out.Cursor, out.At = restWire(body.Queues, (*restStats).wire), body.Cursor, a.at()
	return nil
}

func (r *Conn) getQueue(ctx context.Context, in *millracev1.GetQueueRequest, out *millracev1.GetQueueResponse) error {
	var config restQueueConfig
	a, err := r.ofQueue(ctx, in.GetQueue(), "", &config)
	if err != nil {
		return err
	}
	out.Config, out.At = config.wire(), a.at()
	return nil
}

// ofQueue reads what a route below a queue's name says.
func (r *Conn) ofQueue(ctx context.Context, queue, route string, into any) (*restAnswer, error) {
	path, err := queuePath(queue, route)
	if err != nil {
		return nil, err
	}
	return r.call(ctx, get(path, nil), into)
}

// configured is the answer to a change of a configuration.
type configured struct {
	Version uint64 `json:"version,string"`
}

func (r *Conn) setQueue(ctx context.Context, in *millracev1.SetQueueRequest, out *millracev1.SetQueueResponse) error {
	path, err := queuePath(in.GetQueue(), "")
	if err != nil {
		return err
	}
	q := put(path, in.IfVersion, func(w *restBody) { w.queueConfig(in.GetConfig()) })
	var answer configured
	a, err := r.call(ctx, q, &answer)
	if err != nil {
		return enclosed(err, "config")
	}
	out.Version, out.At = answer.Version, a.at()
	return nil
}

func (r *Conn) deleteQueue(ctx context.Context, in *millracev1.DeleteQueueRequest, out *millracev1.DeleteQueueResponse) error {
	path, err := queuePath(in.GetQueue(), "")
	if err != nil {
		return err
	}
	q := restRequest{method: http.MethodDelete, path: path}
	if in.GetPurge() {
		q.query = url.Values{"purge": {"true"}}
	}
	if in.IfVersion != nil {
		q.ifMatch = fmt.Sprintf(`"%d"`, *in.IfVersion)
	}
	a, err := r.do(ctx, q)
	switch {
	case err != nil:
		return err
	case a.status != http.StatusNoContent: // it has no body
		return restBetween(a)
	}
	out.At = a.at()
	return nil
}

func put(path string, ifVersion *uint64, fields func(w *restBody)) restRequest {
	q := restRequest{method: http.MethodPut, path: path, body: restDocument(256, fields)}
	if ifVersion != nil {
		q.ifMatch = fmt.Sprintf(`"%d"`, *ifVersion)
	}
	return q
}

func (r *Conn) queueStats(ctx context.Context, in *millracev1.QueueStatsRequest, out *millracev1.QueueStatsResponse) error {
	var stats restStats
	a, err := r.ofQueue(ctx, in.GetQueue(), "/stats", &stats)
	if err != nil {
		return err
	}
	out.Stats, out.At = stats.wire(), a.at()
	return nil
}

func (r *Conn) getNamespace(ctx context.Context, _ *millracev1.GetNamespaceRequest, out *millracev1.GetNamespaceResponse) error {
	var body struct {
		Version      uint64 `json:"version,string"`
		AutoCreate   *bool  `json:"auto_create"`
		RetainBytes  int64  `json:"retain_bytes"`
		CreateOnPush bool   `json:"create_on_push"`

		KeyBytes           int64  `json:"key_bytes"`
		KeyWritesPerSecond int64  `json:"key_writes_per_second"`
		KeyBytesPerSecond  int64  `json:"key_bytes_per_second"`
		MeasuredKeyBytes   uint64 `json:"measured_key_bytes"`
		OverKeyBytes       bool   `json:"over_key_bytes"`
		restPace

		Partitions []restPartition
	}
	a, err := r.call(ctx, get("/v1/namespace", nil), &body)
	if err != nil {
		return err
	}
	out.Config = &millracev1.NamespaceConfig{
		Version: body.Version, AutoCreate: body.AutoCreate, RetainBytes: body.RetainBytes, CreateOnPush: body.CreateOnPush,
		KeyBytes: body.KeyBytes, KeyWritesPerSecond: body.KeyWritesPerSecond, KeyBytesPerSecond: body.KeyBytesPerSecond,
	}
	out.MeasuredKeyBytes, out.OverKeyBytes = body.MeasuredKeyBytes, body.OverKeyBytes
	out.RecentKeyWritesPerSecond, out.RecentKeyBytesPerSecond = body.Writes, body.Bytes
	out.OvershootKeyWrites, out.OvershootKeyBytesWritten = body.OverWrites, body.OverBytes
	out.Partitions, out.At = restWire(body.Partitions, (*restPartition).wire), a.at()
	return nil
}

func (r *Conn) createNamespace(ctx context.Context, in *millracev1.CreateNamespaceRequest, out *millracev1.CreateNamespaceResponse) error {
	var body struct {
		Replayed   bool
		Partitions []restPartition
	}
	_, err := r.call(ctx, post("/v1/namespace", 32, func(w *restBody) { w.int("partitions", int64(in.GetPartitions())) }), &body)
	if err != nil {
		return err
	}
	out.Replayed, out.Partitions = body.Replayed, restWire(body.Partitions, (*restPartition).wire)
	return nil
}

func (r *Conn) deleteNamespace(ctx context.Context, _ *millracev1.DeleteNamespaceRequest, out *millracev1.DeleteNamespaceResponse) error {
	var body struct{ Existed bool }
	if _, err := r.call(ctx, restRequest{method: http.MethodDelete, path: "/v1/namespace"}, &body); err != nil {
		return err
	}
	out.Existed = body.Existed
	return nil
}

func (r *Conn) setNamespace(ctx context.Context, in *millracev1.SetNamespaceRequest, out *millracev1.SetNamespaceResponse) error {
	config := in.GetConfig()
	q := put("/v1/namespace", in.IfVersion, func(w *restBody) {
		if config != nil && config.AutoCreate != nil {
			w.key("auto_create")
			w.b = strconv.AppendBool(w.b, config.GetAutoCreate())
			w.comma = true
		}
		w.int("retain_bytes", config.GetRetainBytes())
		w.flag("create_on_push", config.GetCreateOnPush())
		w.int("key_bytes", config.GetKeyBytes())
		w.int("key_writes_per_second", config.GetKeyWritesPerSecond())
		w.int("key_bytes_per_second", config.GetKeyBytesPerSecond())
	})
	var answer configured
	a, err := r.call(ctx, q, &answer)
	if err != nil {
		return enclosed(err, "config")
	}
	out.Version, out.At = answer.Version, a.at()
	return nil
}

func (r *Conn) status(ctx context.Context, _ *millracev1.StatusRequest, out *millracev1.StatusResponse) error {
	var body restStatus
	if _, err := r.call(ctx, get("/v1/status", nil), &body); err != nil {
		return err
	}
	body.into(out)
	return nil
}
