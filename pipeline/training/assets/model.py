"""What MLflow runs to load a logged model: code and safetensors, nothing pickled."""

from pipeline.serving import offer_model, open_answers

offer_model(open_answers)
