// A small server that leaks on purpose: it parses orders, keeps an index and a cache that never
// forgets. It writes the profiles in ../valid:
//
//	GO111MODULE=off go build -trimpath -o /usr/local/bin/leaky leaky.go && leaky ../valid
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
)

type order struct {
	id    int
	items []string
	next  *order
}

type tree struct {
	left, right *tree
	key         int
	payload     []byte
}

var (
	cache  = map[int]*order{}
	index  *tree
	orders *order
	mutex  sync.Mutex
)

// insert recurses: a stack holds it many times.
func (t *tree) insert(key int) *tree {
	if t == nil {
		return &tree{key: key, payload: make([]byte, 512)}
	}
	if key < t.key {
		t.left = t.left.insert(key)
	} else {
		t.right = t.right.insert(key)
	}
	return t
}

// item is small enough to be inlined into parseOrder.
func item(id, n int) string { return strings.Repeat(fmt.Sprint(id%10), 16+n) }

func parseOrder(id int) *order {
	o := &order{id: id}
	for n := 0; n < 8; n++ {
		o.items = append(o.items, item(id, n))
	}
	return o
}

func serve(from, to int) {
	for id := from; id < to; id++ {
		o := parseOrder(id)
		remember(o)
		index = index.insert(id * 7919 % 10007)
	}
}

// remember is the leak.
func remember(o *order) {
	mutex.Lock()
	defer mutex.Unlock()
	cache[o.id] = o
	o.next = orders
	orders = o
}

func contend() {
	var group sync.WaitGroup
	for worker := 0; worker < 8; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := 0; n < 2000; n++ {
				remember(&order{id: -n})
			}
		}()
	}
	group.Wait()
}

func write(folder, name, kind string) {
	runtime.GC()
	file, err := os.Create(filepath.Join(folder, name))
	if err != nil {
		panic(err)
	}
	defer file.Close()
	if err := pprof.Lookup(kind).WriteTo(file, 0); err != nil {
		panic(err)
	}
}

func main() {
	runtime.MemProfileRate = 1
	runtime.SetMutexProfileFraction(1)
	folder := os.Args[1]
	cpu, err := os.Create(filepath.Join(folder, "go.leaky.cpu.pb.gz"))
	if err != nil {
		panic(err)
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		panic(err)
	}
	serve(0, 1000)
	write(folder, "go.leaky.before.pb.gz", "heap")
	serve(1000, 4000)
	write(folder, "go.leaky.after.pb.gz", "heap")
	contend()
	for n := 0; n < 40; n++ {
		serve(4000+n, 6000+n)
	}
	pprof.StopCPUProfile()
	cpu.Close()
	write(folder, "go.leaky.contention.pb.gz", "mutex")
}
