# make run and make test are all that most people need.
.DEFAULT_GOAL := help
.PHONY: help run stop build guest test test-race test-cloud test-grid test-guests test-openstack packages test-packages test-runtimes test-sops test-docker test-upgrade lint check soak kill-loop mutants bench bench-backup bench-boot bench-cluster bench-crush bench-disks bench-images bench-mdserver bench-placement bench-pool pictures recording clean

help: ## list these
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' Makefile

run: ## from a fresh host to a running VM (IMAGE=debian-12 QUERY=... for another)
	@scripts/run

stop: ## end the cloud that make run started; its VMs go on running
	@scripts/stop

build: ## bin/croft and bin/fission, and their other names beside them
	@scripts/build

guest: ## build the small guest image, /var/lib/croft/guests/tiny.qcow2
	@scripts/guest-image

test: ## install what tests need, and run all tests
	@scripts/test

test-race: export CROFT_RACE = 1
test-race: ## all tests with the race detector, also those that start processes
	@scripts/test

test-cloud: ## the tests of the cloud alone
	@scripts/test -p=1 -short -skip='Grid|^TestAnExclusiveJob|^TestWatchesAre|^TestScripts/(grid|ip|sshca)' $$(go list ./... | grep -vE '^croft/(grid/|cmd/fission$$)')

test-grid: ## the tests of the grid alone
	@scripts/test ./grid/... ./cmd/fission
	@scripts/test -run='Grid|^TestAnExclusiveJob|^TestWatchesAre|^TestScripts/(grid|ip|sshca)' ./cmd/croft

test-guests: ## boot Debian with each source of metadata, ten guests at once, clusters, hosts that are cut off or die; takes a quarter of an hour without KVM
	@scripts/test-guests

test-openstack: ## against a real Keystone and Placement (CROFT_TEST_CLOUDS=clouds.yaml with clouds admin and demo)
	@scripts/test-openstack

packages: ## build/packages/croft_*.deb and croft-*.rpm
	@scripts/packages

test-runtimes: build ## try the grid's runtimes on a machine with systemd
	@scripts/test-runtimes

test-sops: ## open files of the real sops, which is fetched for that
	@scripts/test-sops

test-packages: ## build the packages, and install, hang, upgrade and purge them on a machine with systemd
	@scripts/test-packages

test-docker: ## build and use docker/compose.yaml, with a daemon of its own where none runs
	@scripts/test-docker

test-upgrade: ## this version beside the one before (CROFT_PREVIOUS=COMMIT), both ways, and an upgrade
	@scripts/test-upgrade

lint: ## gofmt, vet, staticcheck, shellcheck
	@scripts/check

check: export CROFT_RACE = some
check: lint ## what CI runs: lint, then all tests, with the race detector in those that start no commands, hosts or guests
	@scripts/test

kill-loop: ## kill, suspend and freeze real processes for CROFT_KILL=20m, with one etcd and with three
	@scripts/kill-loop

mutants: ## mistakes that no test notices, made one at a time for CROFT_MUTANTS=10m
	@scripts/mutants

soak: ## faults under load and random input, each for CROFT_SOAK=10m
	@scripts/soak

bench: ## all benchmarks
	@scripts/bench

bench-mdserver: ## our metadata server beside nginx with the same bytes
	@scripts/bench-mdserver

bench-backup: ## the backup of a disk of 10 GB beside restic alone with the same disk
	@scripts/bench-backup

bench-boot: ## a guest's way to kernel, address and ssh beside virt-install's and QEMU's own
	@scripts/bench-boot

bench-cluster: ## instances a second on a thousand simulated hosts (ARGS='-hosts 5000 -rate 300')
	@scripts/bench-cluster $(ARGS)

bench-crush: ## mappings of croft crush beside Ceph's crushtool
	@scripts/bench-crush $(ARGS)

bench-disks: ## snapshots of a disk of 10 GB, and the copy of a move beside qemu-img convert over SSH
	@scripts/bench-disks

bench-images: ## an image that the second host gets from the first, beside the first host's download from the origin
	@scripts/bench-images

bench-placement: ## our Placement beside OpenStack's: installs MariaDB, takes ten minutes
	@scripts/bench-placement

bench-pool: ## our manager of pools beside resalloc's (RESALLOC=a checkout of it) and the floor of two shells a ticket
	@scripts/bench-pool

pictures: ## draw docs/pictures, the page at three widths (needs Chromium)
	@scripts/pictures

recording: ## draw docs/recording.svg, the terminal session of the README
	@scripts/recording

clean: ## remove what was built here; the cloud's state stays where it is
	rm -rf bin build
