"""The names that logged MLflow models import; kept so that models logged by any version still load."""

from pipeline.prediction.serving import open_answers
from pipeline.tracking.mlflow_models import offer_model

__all__ = ["offer_model", "open_answers"]
