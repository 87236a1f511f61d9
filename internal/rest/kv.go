package rest

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// Parameters of routes of keys.
var (
	// Bounds of a range stand in an address, where keys have a length that is sure to fit.
	boundForm = Form{MaxLength: urlKeyBytes}
	maxStale  = Param{Name: "max_staleness", Type: "duration", Form: stalenessForm, Doc: "With consistency=stale: ask a majority when what this node has may be older."}
	ifRevOf   = Param{Name: "if_rev", Type: "integer", Form: AnyUint64, Doc: "Refuse unless the key is at this revision; 0: absent."}
	keyReads  = []Param{minIndex, freshly, maxStale}
	rangeKeys = []Param{
		{Name: "prefix", Type: "string", Form: boundForm, Doc: "The keys that begin with it; mutually exclusive with from and to."},
		{Name: "from", Type: "string", Form: boundForm, Doc: "The first key."},
		{Name: "to", Type: "string", Form: boundForm, Doc: "The end, without this key."},
	}
)

// keyspacesService begins the methods of keyspaces.
const keyspacesService = "/millrace.v1.KeyspaceService/"

// keyRoutes read and write keys, and configure keyspaces.
func keyRoutes() []*Route {
	return []*Route{
		{
			// Keys are any bytes: percent-encoded in a path, so that a slash within one does not separate.
			Method: http.MethodGet, Path: "/v1/kv/{keyspace}/keys/{key}", Native: keysService + "Get", Headers: []string{"Millrace-Rev", headerWriter, headerDisposition}, Status: statusOK, Query: keyReads,
			Doc:    "Read a key. The answer is its value, byte for byte, as an attachment, so that a browser does not show it; the header Millrace-Rev is its revision. Where the keyspace keeps writers, Millrace-Writer names the task that wrote it last, and the token of the attempt behind a blank; without the header, none was kept.",
			handle: (*restCall).getKey,
		},
		{
			Method: http.MethodPut, Path: "/v1/kv/{keyspace}/keys/{key}", Repeat: RepeatByKey, Native: keysService + "Put", Header: []Param{keyParam}, Answer: "KeyWritten", Headers: []string{"Millrace-Rev"}, Status: statusOK, Raw: true,
			Doc:    "Store a value, which is the body, byte for byte.",
			Query:  []Param{ifRevOf, {Name: "if_absent", Type: "true|false", Doc: "Refuse when the key exists."}},
			handle: (*restCall).putKey,
		},
		{
			Method: http.MethodDelete, Path: "/v1/kv/{keyspace}/keys/{key}", Repeat: RepeatByKey, Native: keysService + "Delete", Header: []Param{keyParam}, Answer: "KVDeleteResponse", Status: statusOK,
			Doc: "Remove a key. An absent key is not an error.", Query: []Param{ifRevOf}, handle: (*restCall).deleteKey,
		},
		{
			// It is posted, because many keys do not fit an address.
			Method: http.MethodPost, Path: "/v1/kv/{keyspace}/get", Repeat: RepeatRead, Native: keysService + "BatchGet", Body: "KVBatchGetRequest", Answer: "KVBatchGetResponse", Status: statusOK,
			Doc:    "Read up to 1,000 keys, those of each partition at one index. Fewer results than keys: ask again for the others.",
			fields: fieldNames(kvBatchGetRequestFields), handle: (*restCall).kvBatchGet,
		},
		{
			Method: http.MethodGet, Path: "/v1/kv/{keyspace}", Native: keysService + "Range", Answer: "KeyPage", Status: statusOK,
			Doc: "List the keys of a range in byte order, page by page. Each page is consistent in itself, in each partition.",
			Query: append(append([]Param{}, rangeKeys...), limitOf, cursorOf,
				Param{Name: "keys_only", Type: "true|false", Doc: "Leave the values out."},
				Param{Name: "head", Type: "integer", Form: wholes(1, int64(64*kib)), Doc: "Only the first bytes of each value, 1 to 65,536, and its size."},
				Param{Name: "delimiter", Type: "string", Form: Form{MaxLength: 64}.filled(), Doc: "Show the keys that have it behind the prefix as one prefix, up to it."},
				Param{Name: "order", Type: "asc|desc", Doc: "desc begins with the last one."}, minIndex, freshly, maxStale),
			handle: (*restCall).listKeys,
		},
		{
			Method: http.MethodDelete, Path: "/v1/kv/{keyspace}", Repeat: RepeatSame, Native: keysService + "DeleteRange", Answer: "KVDeleteRangeResponse", Status: statusOK,
			Doc: "Remove the keys of a range, in each partition at once. One of prefix, from and to must be given; prefix= is all keys.",
			Query: append(append([]Param{}, rangeKeys...),
				Param{Name: "count", Type: "true|false", Doc: "Tell how many there were, at most 100,000 in each partition."}),
			handle: (*restCall).deleteKeys,
		},
		{
			Method: http.MethodGet, Path: "/v1/keyspaces", Native: keyspacesService + "List", Answer: "ListKeyspacesResponse", Status: statusOK,
			Query: append(append([]Param{}, pageParams...), Param{Name: "stats", Type: "true|false", Doc: "Tell how many keys each has, and what they take on disk. One request counts about 100,000 keys at most, as many in each keyspace; more_keys says that there are more."}, freshly),
			Doc:   "List keyspaces by name, with their configuration.", handle: (*restCall).keyspaceList,
		},
		{
			Method: http.MethodGet, Path: "/v1/keyspaces/{keyspace}", Native: keyspacesService + "Get", Answer: "KeyspaceFound", Headers: []string{"ETag"}, Status: statusOK, Query: staleParams,
			Doc: "Read a keyspace's configuration, and count what is in it. The ETag is the version of the configuration.", handle: (*restCall).keyspaceGet,
		},
		{
			Method: http.MethodPut, Path: "/v1/keyspaces/{keyspace}", Repeat: RepeatCondition, Native: keyspacesService + "Set", Body: "KeyspaceConfig", Answer: "Configured", Headers: []string{"ETag"}, Status: statusOK,
			Header: []Param{ifMatch},
			Doc:    "Replace a keyspace's configuration, or make the keyspace. The version rises only when something changes.",
			fields: fieldNames(keyspaceConfigFields), handle: (*restCall).keyspaceSet,
		},
		{
			Method: http.MethodDelete, Path: "/v1/keyspaces/{keyspace}", Repeat: RepeatSame, Native: keyspacesService + "Delete", Answer: "DeleteKeyspaceResponse", Status: statusOK,
			Doc: "Remove a keyspace and all its keys. Its name is free at once.", handle: (*restCall).keyspaceDelete,
		},
	}
}

// maxStaleness reads how old an answer may be; nil is as old as it is.
func (c *restCall) maxStaleness() (*durationpb.Duration, core.Fact) {
	s, ok := c.query.get("max_staleness")
	if !ok {
		return nil, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return nil, edge.Invalid("max_staleness", "must be a duration, such as 5s")
	}
	return durationpb.New(d), nil
}

// ifRev reads the revision that a key must have to be changed; nil: any.
func (c *restCall) ifRev() (*uint64, core.Fact) {
	n, given, fact := c.number("if_rev")
	if !given {
		return nil, nil
	}
	return &n, fact
}

// flag reads a parameter that is true or false.
func (c *restCall) flag(name string) bool {
	s, _ := c.query.get(name)
	return s == "true"
}

// putKey serves PUT /v1/kv/{keyspace}/keys/{key}.
// It is written by hand: the body is the value.
func (c *restCall) putKey() error {
	// The value is the body, so everything else of the op stands in the address.
	put := &pb.KVPut{Keyspace: c.params[0], Key: []byte(c.params[1])}
	var fact core.Fact
	if put.IfRev, fact = c.ifRev(); fact != nil {
		return fact
	}
	put.IfAbsent = c.flag("if_absent")
	var err error
	if put.Value, err = c.body(); err != nil {
		return err
	}
	in := &pb.KVPutRequest{Put: put}
	if in.RequestId, fact = c.requestKey(nil); fact != nil {
		return fact
	}
	out, err := c.s.Keys().Put(c.ctx, in)
	if err != nil {
		return c.keyTaken(err)
	}
	c.w.Header()[headerRev] = []string{strconv.FormatUint(out.GetRev(), 10)}
	return c.ok(http.StatusOK, out.GetAt(), func(w *jsonWriter) { writeKVPutResponse(w, out) })
}

// deleteKey serves DELETE /v1/kv/{keyspace}/keys/{key}.
// It is written by hand: its fields are those of a message within the request.
func (c *restCall) deleteKey() error {
	in := &pb.KVDelete{Keyspace: c.params[0], Key: []byte(c.params[1])}
	var fact core.Fact
	if in.IfRev, fact = c.ifRev(); fact != nil {
		return fact
	}
	request := &pb.KVDeleteRequest{Delete: in}
	if request.RequestId, fact = c.requestKey(nil); fact != nil {
		return fact
	}
	out, err := c.s.Keys().Delete(c.ctx, request)
	if err != nil {
		return c.keyTaken(err)
	}
	return c.ok(http.StatusOK, out.GetAt(), func(w *jsonWriter) { writeKVDeleteResponse(w, out) })
}

// ats answers with an object of several partitions, or of one.
func (c *restCall) ats(list []*pb.At, fields func(w *jsonWriter)) error {
	// A header says one place only. Where there are several partitions the body has the list.
	if len(list) == 1 {
		c.showIndex(list[0])
	}
	return c.object(http.StatusOK, fields)
}

// writeAts tells where an answer of several partitions stands in each.
func writeAts(w *jsonWriter, list []*pb.At) {
	w.List("at", len(list), func(i int) {
		w.Open('{')
		w.Count("partition", uint64(list[i].GetPartition()))
		w.Exact("index", list[i].GetIndex())
		w.Close('}')
	})
}

// keyRange reads the range that a query names; given says that it names one.
func (c *restCall) keyRange() (r core.KeyRange, given bool) {
	r.Keyspace = c.params[0]
	for _, bound := range []struct {
		name string
		to   *[]byte
	}{{"prefix", &r.Prefix}, {"from", &r.From}, {"to", &r.To}} {
		if s, ok := c.query.get(bound.name); ok {
			given = true
			*bound.to = []byte(s)
		}
	}
	return r, given
}

// listKeys serves GET /v1/kv/{keyspace}.
// It is written by hand: it is a page of what is a stream over gRPC.
func (c *restCall) listKeys() error {
	// Over gRPC a range is a stream. Here it is a page, which the service reads by itself.
	in := api.KeyPageRequest{Values: !c.flag("keys_only")}
	in.Range, _ = c.keyRange()
	head, fact := c.firstBytes()
	if fact != nil {
		return fact
	}
	order, _ := c.query.get("order")
	delimiter, _ := c.query.get("delimiter")
	in.Range.Head, in.Range.Desc = int(head), order == "desc"
	in.Range.Delimiter, in.Range.Behind = []byte(delimiter), len(in.Range.Prefix)
	if fact := c.s.Keys().CheckRange(in.Range); fact != nil {
		return fact
	}
	if in.Limit, in.Cursor, fact = c.page(); fact != nil {
		return fact
	}
	if in.MinIndex, in.Stale, fact = c.readOptions(); fact != nil {
		return fact
	}
	if in.MaxStaleness, fact = c.maxStaleness(); fact != nil {
		return fact
	}
	out, err := c.s.Keys().ReadPage(c.ctx, in)
	if err != nil {
		return err
	}
	var prefixes [][]byte
	for _, p := range out.Pairs {
		if p.Many {
			prefixes = append(prefixes, p.Key)
		}
	}
	out.Pairs = slices.DeleteFunc(out.Pairs, func(p core.KeyPair) bool { return p.Many })
	return c.ats(out.At, func(w *jsonWriter) {
		w.List("items", len(out.Pairs), func(i int) {
			p := &out.Pairs[i]
			w.Open('{')
			w.AnyBytes("key", p.Key)
			if in.Values {
				w.AnyBytes("value", p.Value)
			}
			w.Exact("rev", p.Rev)
			if in.Range.Head > 0 || !in.Values {
				w.Count("size", uint64(p.Size))
			}
			if by := api.ShowWriter(p.Writer); by != nil {
				w.Object("writer", func() { writeKeyWriter(w, by) })
			}
			w.Close('}')
		})
		if len(prefixes) > 0 {
			w.List("prefixes", len(prefixes), func(i int) {
				w.Open('{')
				w.AnyBytes("prefix", prefixes[i])
				w.Close('}')
			})
		}
		w.OptStr("cursor", out.Cursor)
		writeAts(w, out.At)
	})
}

// deleteKeys serves DELETE /v1/kv/{keyspace}.
// It is written by hand: a range must be named, so that a lost query does not remove all keys.
func (c *restCall) deleteKeys() error {
	r, given := c.keyRange()
	// All keys of a keyspace go only for a client that says so: an address that lost its query must not
	// do it.
	if !given {
		return edge.Invalid("prefix", "is required, or from and to: prefix= (empty) means all keys")
	}
	out, err := c.s.Keys().DeleteRange(c.ctx, &pb.KVDeleteRangeRequest{Range: &pb.KVDeleteRange{
		Keyspace: r.Keyspace, From: r.From, To: r.To, Prefix: r.Prefix, Count: c.flag("count"),
	}})
	if err != nil {
		return edge.Unprefixed("range", err)
	}
	return c.ats(out.GetAt(), func(w *jsonWriter) { writeKVDeleteRangeResponse(w, out) })
}
