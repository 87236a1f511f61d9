package session

import (
	"runtime/debug"
	"sync"
)

// modulePath names this library among the modules of a program.
const modulePath = "github.com/millrace/millrace"

// SDKName is the name and version of this library, as a user agent tells them: devel where the program was not built from a release.
var SDKName = sync.OnceValue(func() string {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok {
		modules := append(info.Deps, &info.Main)
		for _, m := range modules {
			if m.Path == modulePath && m.Version != "" && m.Version != "(devel)" {
				version = m.Version
			}
		}
	}
	return "millrace-go/" + version
})
