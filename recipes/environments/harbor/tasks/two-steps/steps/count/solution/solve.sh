#!/bin/sh
echo "grep -c ' ERROR ' \"\$1\"" >/app/count.sh
