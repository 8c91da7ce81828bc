"""What MLflow runs to load a logged model: code and safetensors, nothing pickled."""

from pipeline.serving import open_answers
from pipeline.tracking import offer_model

offer_model(open_answers)
