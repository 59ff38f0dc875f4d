#!/bin/sh
echo '([01][0-9]|2[0-3]):[0-5][0-9]' >/app/pattern.txt
