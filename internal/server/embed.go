package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/embed"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/vector"
)

// embedders are the embedders of a server in the form that the API needs. The map is complete when
// the server starts and not changed after that.
type embedders struct {
	// One cache of vectors for all embedders.
	cache  *embed.Cache
	byName map[string]*embed.Embedder
}

var _ api.Embedder = (*embedders)(nil)

// openEmbedders makes the embedders that the operator's file describes, with their keys from files
// or the environment. If none has the name default, the built-in lexical embedder gets it. On an
// error the embedders that were made already are closed.
func openEmbedders(fs env.FS, o *Options, cacheBytes int64) (*embedders, error) {
	var list []config.Embedder
	if o.EmbeddersFile != "" {
		content, err := env.ReadFile(fs, o.EmbeddersFile, maxSmallFile)
		if err != nil {
			return nil, fmt.Errorf("embedders: %w", err)
		}
		if list, err = config.ParseEmbedders(content); err != nil {
			return nil, err
		}
	}
	out := &embedders{cache: embed.NewCache(embed.DefaultCacheEntries, cacheBytes), byName: make(map[string]*embed.Embedder)}
	for i := range list {
		c := &list[i]
		// A file with a key must be trusted like one with settings.
		if c.KeyFile != "" {
			key, err := env.ReadFile(fs, c.KeyFile, maxSmallFile)
			err = errors.Join(err, CheckTrusted(c.KeyFile))
			if err == nil {
				if c.Key, err = auth.CleanSecret(string(key)); err != nil {
					err = fmt.Errorf("%s: %w", c.KeyFile, err)
				}
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("embedder %s: %w", c.Name, err), out.close())
			}
		}
		// A key may also come from the environment. An empty variable is a mistake.
		if c.KeyEnv != "" {
			key, err := auth.CleanSecret(os.Getenv(c.KeyEnv))
			switch {
			case err != nil:
				return nil, errors.Join(fmt.Errorf("embedder %s: environment variable %s: %w", c.Name, c.KeyEnv, err), out.close())
			case key == "":
				return nil, errors.Join(fmt.Errorf("embedder %s: environment variable %s is empty", c.Name, c.KeyEnv), out.close())
			}
			c.Key = key
		}
		if err := out.add(o, &list[i]); err != nil {
			return nil, errors.Join(err, out.close())
		}
	}
	if out.byName[config.DefaultEmbedder] == nil {
		return out, out.add(o, &config.Embedder{Name: config.DefaultEmbedder, Kind: embed.KindLexical})
	}
	return out, nil
}

// add makes one embedder.
func (e *embedders) add(o *Options, c *config.Embedder) error {
	made, err := embed.New(embed.Options{
		Kind: c.Kind, URL: c.URL, Model: c.Model, Dim: c.Dim, Key: c.Key, QueryPrefix: c.QueryPrefix, DocumentPrefix: c.DocumentPrefix,
		MaxText: c.MaxText, Timeout: c.Timeout, InFlight: c.InFlight, Waiting: c.Waiting, Batch: c.Batch,
		Cache: e.cache, Clock: o.Clock, Net: o.Net, Rand: o.Rand,
	})
	if err != nil {
		return fmt.Errorf("embedder %s: %w", c.Name, err)
	}
	e.byName[c.Name] = made
	return nil
}

// close stops all embedders; callers that wait get an error.
func (e *embedders) close() error {
	for _, one := range e.byName {
		one.Close()
	}
	return nil
}

// find returns the embedder of a name, an empty one being default; nil if there is none.
func (e *embedders) find(name string) *embed.Embedder {
	if name == "" {
		name = config.DefaultEmbedder
	}
	return e.byName[name]
}

// Model returns what is known of an embedder without asking its provider: Dim may be 0.
func (e *embedders) Model(name string) (core.EmbedModel, bool) {
	one := e.find(name)
	if one == nil {
		return core.EmbedModel{}, false
	}
	return core.EmbedModel{Name: cmp.Or(name, config.DefaultEmbedder), Model: one.Model(), Older: one.Older(), Dim: one.KnownDim(), Given: one.Given(), Semantic: one.Semantic()}, true
}

// Models lists the embedders by name, the default one first.
func (e *embedders) Models() []core.EmbedModel {
	var out []core.EmbedModel
	for name := range e.byName {
		m, _ := e.Model(name)
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b core.EmbedModel) int {
		first := func(m core.EmbedModel) int { return bit(m.Name != config.DefaultEmbedder) }
		return cmp.Or(cmp.Compare(first(a), first(b)), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Dim returns the dimension of an embedder's vectors. If no answer of its provider has shown it
// yet, the provider is asked.
func (e *embedders) Dim(ctx context.Context, tenant, name string) (int, error) {
	one := e.find(name)
	if one == nil {
		return 0, core.NotFound{Kind: "embedder", ID: name}
	}
	dim, err := one.Dim(ctx, tenant)
	if err != nil {
		return 0, embedFault(err)
	}
	return dim, nil
}

// Embed makes vectors of texts, in their order. A text that the provider refuses is a fact in its
// own result; any other error fails the whole call.
func (e *embedders) Embed(ctx context.Context, r core.EmbedRequest) ([]core.Embedding, error) {
	one := e.find(r.Embedder)
	if one == nil {
		return nil, core.NotFound{Kind: "embedder", ID: r.Embedder}
	}
	got, err := one.Embed(ctx, embed.Request{Tenant: r.Tenant, Model: r.Model, Texts: r.Texts, Query: r.Query, Strict: r.Whole, Protected: r.Protected, Each: r.Each, Tokens: r.Tokens})
	if err != nil {
		return nil, embedFault(err)
	}
	out := make([]core.Embedding, len(got))
	for i := range got {
		g := &got[i]
		if f, ok := errors.AsType[embed.Refused](g.Err); ok {
			f.Text = i
			out[i].Fact = refusedText(f)
			continue
		}
		out[i] = core.Embedding{Vector: g.Floats, Tokens: g.Tokens, Cached: g.Cached, Truncated: g.Truncated, Text: g.Vector}
	}
	return out, nil
}

// refusedText returns the fact for a text that the provider refused. It has the status only: what
// the provider says may contain anything, such as the text itself.
func refusedText(f embed.Refused) core.Fact {
	return core.Invalid{
		Field: "texts[" + strconv.Itoa(f.Text) + "]", Reason: "embed_refused", Message: "is refused by the embedder's provider with status " + strconv.Itoa(f.Status),
	}
}

// embedFault turns an error of an embedder into a fact that a client may see.
func embedFault(err error) error {
	if f, ok := errors.AsType[embed.Unavailable](err); ok {
		return core.EmbedUnavailable{After: core.MillisOf(f.After)}
	}
	if _, ok := errors.AsType[embed.Invalid](err); ok {
		return core.Unavailable{Reason: "embed_invalid"}
	}
	if f, ok := errors.AsType[embed.Refused](err); ok {
		return refusedText(f)
	}
	if f, ok := errors.AsType[embed.TextTooLong](err); ok {
		return core.TooLarge{Field: "texts", Limit: "model_text", Max: int64(f.Limit)}
	}
	switch {
	case errors.Is(err, embed.ErrTokens):
		return core.Invalid{Field: "texts", Reason: "token_input", Message: "holds tokens, which this embedder does not take: give texts"}
	case errors.Is(err, embed.ErrQueueFull):
		return core.Unavailable{Reason: "embed_queue_full", Limit: "embed_waiting"}
	case errors.Is(err, embed.ErrClosed):
		return core.Unavailable{Reason: "stopping"}
	}
	return err
}

// Prepare checks a client's own vector and brings it into the form that is stored and compared:
// normalized if the metric is cosine. It changes v.
func (e *embedders) Prepare(v []float32, metric core.Metric) error {
	cosine := metric == core.MetricCosine
	if err := vector.Check(v, len(v), cosine); err != nil {
		return err
	}
	if cosine {
		vector.Normalize(v)
	}
	return nil
}

// maxSmallFile bounds files that the operator names, such as settings and keys, in bytes.
const maxSmallFile = 1 << 20
