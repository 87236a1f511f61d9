package rest

import (
	"net/http"
	"runtime/pprof"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/edge"
)

// collectionRoutes are of collections, their points, and rulesets.
func collectionRoutes() []*Route {
	const collection = "/v1/collections/{collection}"
	return []*Route{
		{
			// A collection is made once and never changed, so its route is PUT with the whole definition.
			Method: http.MethodPut, Path: collection, Repeat: RepeatCondition, Native: searchesService + "SetCollection", Body: "Collection", Answer: "SetCollectionResponse", Status: statusMade,
			Doc:    "Make a collection. Its definition is fixed: the same again is answered with 200, another one is refused.",
			fields: fieldNames(collectionFields), handle: (*restCall).setCollection,
		},
		{
			Method: http.MethodGet, Path: collection, Native: searchesService + "GetCollection", Answer: "Collection", Status: statusOK, Query: staleParams,
			Doc: "Read a collection's definition.", handle: (*restCall).searchGetCollection,
		},
		{
			Method: http.MethodDelete, Path: collection, Repeat: RepeatSame, Native: searchesService + "DeleteCollection", Answer: "DeleteCollectionResponse", Status: statusOK,
			Doc: "Remove a collection with all its points and recordings.", handle: (*restCall).searchDeleteCollection,
		},
		{
			Method: http.MethodGet, Path: "/v1/collections", Native: searchesService + "ListCollections", Answer: "ListCollectionsResponse", Status: statusOK, Query: stalePage,
			Doc: "List collections by name.", handle: (*restCall).searchListCollections,
		},
		{
			Method: http.MethodGet, Path: collection + "/stats", Native: searchesService + "CollectionStats", Answer: "CollectionStatsResponse", Status: statusOK, Query: staleParams,
			Doc: "Count what is in a collection.", handle: (*restCall).searchCollectionStats,
		},
		{
			Method: http.MethodPost, Path: collection + "/points:upsert", Repeat: RepeatCondition, Native: searchesService + "UpsertPoints", Body: "UpsertPoints", Answer: "UpsertPointsResponse", Status: statusOK,
			Doc:    "Store up to 1,000 points, each by itself, or all or none of them. A point without a vector is embedded.",
			fields: fieldNames(upsertPointsFields), handle: (*restCall).searchUpsertPoints,
		},
		{
			Method: http.MethodPost, Path: collection + "/points:delete", Repeat: RepeatCondition, Native: searchesService + "DeletePoints", Body: "DeletePoints", Answer: "DeletePointsResponse", Status: statusOK,
			Doc: "Remove up to 1,000 points, each by itself, or all or none of them.", fields: fieldNames(deletePointsFields), handle: (*restCall).searchDeletePoints,
		},
		{
			// Reads by ids, and counts, are posted: ids and gates do not fit an address.
			Method: http.MethodPost, Path: collection + "/points:get", Repeat: RepeatRead, Native: searchesService + "GetPoints", Body: "GetPoints", Answer: "GetPointsResponse", Status: statusOK,
			Doc: "Read points by their ids. Those that are absent are left out.", fields: fieldNames(getPointsFields), handle: (*restCall).searchGetPoints,
		},
		{
			Method: http.MethodPost, Path: collection + "/points:count", Repeat: RepeatRead, Native: searchesService + "CountPoints", Body: "CountPoints", Answer: "CountPointsResponse", Status: statusOK,
			Doc: "Count exactly the points that pass a gate.", fields: fieldNames(countPointsFields), handle: (*restCall).searchCountPoints,
		},
		{
			// The version is not in the path: the server counts them.
			Method: http.MethodPut, Path: "/v1/rulesets/{ruleset}", Repeat: RepeatSame, Native: searchesService + "PutRuleset", Body: "PutRuleset", Answer: "PutRulesetResponse", Status: statusMade,
			Doc:    "Publish the next version of a ruleset. A rule that does not compile is refused with its line and column. The newest rules again are answered with 200.",
			fields: fieldNames(putRulesetFields), handle: (*restCall).searchPutRuleset,
		},
		{
			Method: http.MethodGet, Path: "/v1/rulesets/{ruleset}", Native: searchesService + "GetRuleset", Answer: "GetRulesetResponse", Status: statusOK, Query: staleParams,
			Doc: "Read a version of a ruleset: NAME@VERSION, or NAME for the newest.", handle: (*restCall).searchGetRuleset,
		},
		{
			Method: http.MethodGet, Path: "/v1/rulesets", Native: searchesService + "ListRulesets", Answer: "ListRulesetsResponse", Status: statusOK, Query: staleParams,
			Doc: "List rulesets by name, each with its newest version.", handle: (*restCall).searchListRulesets,
		},
		{
			Method: http.MethodDelete, Path: "/v1/rulesets/{ruleset}", Repeat: RepeatSame, Native: searchesService + "DeleteRuleset", Answer: "DeleteRulesetResponse", Status: statusOK,
			Doc: "Remove a ruleset, by NAME, with all its versions. The numbers of removed versions do not come again.", handle: (*restCall).searchDeleteRuleset,
		},
	}
}

// searchRoutes embed, search, and read what was recorded.
func searchRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodPost, Path: "/v1/embed", Repeat: RepeatRead, Native: searchesService + "Embed", Body: "EmbedRequest", Answer: "EmbedResponse", Status: statusOK,
			Doc: "Make vectors of texts.", fields: fieldNames(embedRequestFields), handle: (*restCall).embed,
		},
		{
			Method: http.MethodPost, Path: "/v1/embeddings", Repeat: RepeatRead, Native: searchesService + "Embed", Body: "EmbeddingsRequest", Answer: "Embeddings", Status: statusOK, Failed: "EmbeddingsFailure",
			Doc:    "Make vectors of texts, for programs that are written for OpenAI's API: its requests, answers and errors.",
			fields: fieldNames(embeddingsFields), handle: (*restCall).embeddings, failure: writeOpenAIError,
		},
		{
			Method: http.MethodGet, Path: "/v1/models", Native: searchesService + "Embed", Answer: "Models", Status: statusOK, Failed: "EmbeddingsFailure",
			Doc: "List what may be named as the model of /v1/embeddings, in the form of OpenAI's API.", handle: (*restCall).listModels, failure: writeOpenAIError,
		},
		{
			Method: http.MethodGet, Path: "/v1/models/{model}", Native: searchesService + "Embed", Answer: "Model", Status: statusOK, Failed: "EmbeddingsFailure",
			Doc: "Read whether there is a model. Slashes of its id may stand in the path as they are.", handle: (*restCall).getModel, failure: writeOpenAIError,
		},
		{
			Method: http.MethodPost, Path: "/v1/matrix/search", Repeat: RepeatRead, Native: searchesService + "Search", Body: "SearchRequest", Answer: "SearchResponse", Status: statusOK,
			Doc:    "Find who passes the gate, and of them who fits best. There are never fewer results than k, or than rows that pass gate and judge.",
			fields: fieldNames(searchRequestFields), bounds: true, handle: (*restCall).search,
		},
		{
			Method: http.MethodGet, Path: "/v1/recordings/{search_id}", Native: searchesService + "GetRecording", Answer: "GetRecordingResponse", Status: statusOK,
			Doc: "Read a search that was recorded.", handle: (*restCall).searchGetRecording,
		},
	}
}

// setCollection serves PUT /v1/collections/{collection}.
// It is written by hand: the name may stand in the body too.
func (c *restCall) setCollection() error {
	in := new(pb.Collection)
	if err := readBody(c, in, collectionFields); err != nil {
		return err
	}
	// A client may send back what it read, where the name is a part of the collection.
	if in.GetName() != "" && in.GetName() != c.params[0] {
		return edge.Invalid("name", "must be the name in the path")
	}
	in.Name = c.params[0]
	out, err := c.s.Searches().SetCollection(c.ctx, &pb.SetCollectionRequest{Collection: in})
	if err != nil {
		return err
	}
	return c.ok(madeOr(out.GetReplayed()), out.GetAt(), func(w *jsonWriter) { writeSetCollectionResponse(w, out) })
}

// madeOr is the status of an answer to what may be repeated: 201 for what was made, 200 for what was
// there.
func madeOr(replayed bool) int {
	if replayed {
		return http.StatusOK
	}
	return http.StatusCreated
}

// begunIf is the status of an answer to what starts something that goes on: 202 for what was begun, 200 for what was not.
func begunIf(begun bool) int {
	if begun {
		return http.StatusAccepted
	}
	return http.StatusOK
}

// embed serves POST /v1/embed.
// It is written by hand: vectors are written without a message in between.
func (c *restCall) embed() error {
	// Profiles tell the reading of large vectors from the search.
	pprof.SetGoroutineLabels(api.ParseStage)
	defer pprof.SetGoroutineLabels(api.NoStage)
	in := new(pb.EmbedRequest)
	if err := readBody(c, in, embedRequestFields); err != nil {
		return err
	}
	m, out, give, err := c.s.Searches().EmbedTexts(c.ctx, in, false)
	if err != nil {
		return err
	}
	defer give()
	return c.object(http.StatusOK, func(w *jsonWriter) { writeEmbedded(w, m, out) })
}

// search serves POST /v1/matrix/search.
// It is written by hand: rows are written without a message in between.
// A deadline is that of the search itself, which is a part of the body.
func (c *restCall) search() error {
	pprof.SetGoroutineLabels(api.ParseStage)
	defer pprof.SetGoroutineLabels(api.NoStage)
	in := new(pb.SearchRequest)
	if err := readBody(c, in, searchRequestFields); err != nil {
		return err
	}
	f, err := c.s.Searches().Find(c.ctx, in, c.limit())
	if err != nil {
		return err
	}
	// One partition has one place, which the header can say.
	if at := f.Response.GetAt(); len(at) == 1 {
		c.showIndex(&pb.At{Partition: at[0].GetPartition(), Index: at[0].GetIndex()})
	}
	return c.object(http.StatusOK, func(w *jsonWriter) { writeSearch(w, f) })
}
