#!/bin/sh
echo "cat \"\$@\" | grep -c '^..:.. ERROR '" >/app/count.sh
