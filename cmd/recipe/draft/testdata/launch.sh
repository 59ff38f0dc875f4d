#!/bin/bash
MODEL="Qwen/Qwen3-4B"
accelerate launch --config_file zero3.yaml testdata/command.py \
    --model_name_or_path "$MODEL" --learning_rate 1e-5 --use_peft \
    --lora_target_modules q_proj, v_proj --beta=0.0 --max-completion-length 512 \
    --output_dir "$OUT" > log.txt
