// A program whose goroutines wait for each other. It writes their stacks and the waits for its lock
// as text:
//
//	GO111MODULE=off go build -trimpath -o /usr/local/bin/workers workers.go
//	workers ../foreign/go-count ../foreign/contention
package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"
)

var (
	mutex sync.Mutex
	jobs  = make(chan int)
	done  = make(chan bool)
)

// work keeps a worker busy with a lock that all workers share.
func work(job int) {
	mutex.Lock()
	defer mutex.Unlock()
	for end := time.Now().Add(time.Duration(job) * time.Microsecond); time.Now().Before(end); {
	}
}

func worker() {
	for job := range jobs {
		work(job)
	}
}

// forgotten is the leak: nobody sends to done.
func forgotten() { <-done }

func write(folder, name, kind string) {
	file, err := os.Create(filepath.Join(folder, name))
	if err != nil {
		panic(err)
	}
	defer file.Close()
	if err := pprof.Lookup(kind).WriteTo(file, 1); err != nil {
		panic(err)
	}
}

func main() {
	runtime.GOMAXPROCS(4)
	runtime.SetMutexProfileFraction(2)
	for n := 0; n < 8; n++ {
		pprof.Do(context.Background(), pprof.Labels("pool", "orders"), func(context.Context) {
			go worker()
		})
	}
	for n := 0; n < 500; n++ {
		jobs <- 20 + n%7
	}
	for n := 0; n < 40; n++ {
		go forgotten()
	}
	time.Sleep(50 * time.Millisecond)
	write(os.Args[1], "workers.goroutine.txt", "goroutine")
	write(os.Args[1], "workers.threadcreate.txt", "threadcreate")
	write(os.Args[2], "workers.mutex.txt", "mutex")
}
