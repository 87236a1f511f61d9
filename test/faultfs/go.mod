// The file system that loses power on purpose is a module of its own, so that no package of the product can link FUSE.
module github.com/millrace/millrace/test/faultfs

go 1.26

require github.com/hanwen/go-fuse/v2 v2.12.1

require golang.org/x/sys v0.28.0 // indirect
