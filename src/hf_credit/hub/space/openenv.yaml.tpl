# The declaration that OpenEnv reads; `load_environment` reads the key `hf_credit`.
spec_version: 1
name: $name
version: "$version"
type: space
runtime: fastapi
app: server.app:app
port: 8000
hf_credit: {environment: $name, options: {}, version: "$version"}
validation:
  # The highest reward exceeds that of random play by the margin, as a test measures.
  reward: {range: $range, oracle_tolerance: 0.0, floor_margin: 0.1}
  resources: {cpu: 1.0, memory_mb: 1024, disk_mb: 1024, episode_timeout_s: 600.0}
  task_distribution: {generator_seed: 0, dataset_version: "$version"}
  network: {mode: no-network}
  capabilities:
    verifier: {kind: reward_channel}
    oracle: {form: injected_state, location: validation/oracle.json}
    set_state: true
    task_api: true
    declared_task_count: {train: $seeds, held_out: $seeds}
  types: {tags: [text, multi-turn]}
  execution:
    kind: openenv_ws
    probe_path: validation/runtime.json
    dockerfile: Dockerfile
    context: .
    agent_boundary: api
