# What scripts/recording shows, one command a line, in a cloud with one host; ! marks one that fails.
schedule --name web --wait VCPU:1,MEMORY_MB:256,DISK_GB:1 tiny
schedule list
curl -s --retry 9 --retry-connrefused http://$(schedule web)/
! schedule --explain VCPU:64,MEMORY_MB:256,DISK_GB:1
croft host list
schedule destroy --wait web
