"""All settings, how they are loaded, and where things are stored.

In: YAML files and flags. Out: one frozen `Config`.

May import: runtime.

Public names, by module:
    explanation: DEFAULT, Setting, config_schema, explain_config
    loading: Config, ConfigError, FLAGS, ModelConfig, PositionConfig, SegmentConfig, TrackingConfig,
        TrainConfig, check_key, first_problem, load_config, parse_assignments, read_yaml, to_yaml
    locations: Place, Uri, parse_place
    marks: decisive_settings, marks_of
    nested_keys: dotted_values, merge
    settings: Config, DataConfig, MetricName, ModelConfig, PositionConfig, ResourceConfig, SegmentConfig,
        SourceOptions, StorageConfig
"""
