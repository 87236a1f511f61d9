package api

import (
	"context"
	"runtime/pprof"
)

// What profiles of the CPU call the parts of a search, or of embedding, that the edge does. The rest of a search is named by
// the node. They are made once: a search sets them many thousand times a second.
var (
	ParseStage = stageLabels("parse")
	embedStage = stageLabels("embed")
	// NoStage ends a stage. The context of a call would too, but a label is looked for in all contexts that it was made from.
	NoStage = context.Background()
)

// stageLabels is a context with the label of a stage, for pprof.
func stageLabels(name string) context.Context {
	return pprof.WithLabels(context.Background(), pprof.Labels("stage", name))
}
